"""Whose turn it is, where tenants have weights; for every store.

A self-clocked fair queue for each kind of worker: those that ask for the same types, tenants and runtime
share one book, and what others claim elsewhere moves nobody in it. Each tenant that has due runs stands at a
place, and the lowest is next. A claim puts its tenant a stride behind the place that was served; so does the
first claim that meets a tenant. Places of those who wait are kept, so every place is reached; of those who
have nothing due nothing is kept: they are owed nothing and owe nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.records import SECOND, Ask, Instant

from .rules import Rules

KEPT = 86_400 * SECOND  # how long a book is kept that no worker uses


def book_of(ask: Ask) -> str:
    """The name of the book in which the turns of such workers are kept."""
    tenants = None if ask.tenants is None else sorted(set(ask.tenants))
    return msgspec.json.encode((sorted(set(ask.types)), tenants, ask.runtime)).decode()


def kept_since(now: Instant) -> Instant:
    """Books that were used later than this are kept."""
    return now - KEPT


class Shares:
    """The turns of one claim."""

    def __init__(self, rules: Rules, passed: int, places: dict[str, int], due: Iterable[str]) -> None:
        self._rules = rules
        self.passed = passed  # the place that was served last
        self.known = places
        self.places = {
            tenant: places[tenant] if tenant in places else passed + rules.stride(tenant) for tenant in due
        }

    def turn(self, tenant: str) -> tuple[int, str]:
        """The lowest is next."""
        return self.places[tenant], tenant

    def take(self, tenant: str) -> None:
        """One claim for this tenant. One that was full for long is served at once, and once."""
        self.passed = max(self.passed, self.places[tenant])
        self.places[tenant] = self.passed + self._rules.stride(tenant)

    def moved(self) -> dict[str, int]:
        """The places that are new or have changed."""
        return {tenant: at for tenant, at in self.places.items() if self.known.get(tenant) != at}

    def gone(self) -> list[str]:
        """Those who wait no more."""
        return [tenant for tenant in self.known if tenant not in self.places]


def reweighed(before: Rules, after: Rules, tenants: Iterable[str]) -> list[str]:
    """Those whose weight has changed: their places are of another weight, and are given anew."""
    return [tenant for tenant in tenants if before.stride(tenant) != after.stride(tenant)]
