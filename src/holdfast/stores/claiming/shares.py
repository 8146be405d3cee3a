"""Fair shares: the order in which tenants with weights are served.

Each kind of worker (the same types, tenants and runtime) has a book: a self-clocked fair queue. Claims of
other kinds of workers do not change it. Each tenant with due runs has a place in the book, a number. The
tenant with the lowest place is next. A claim moves its tenant to the place served last plus the tenant's
stride; a tenant that is new in the book gets its first place in the same way. Places of waiting tenants are
stored, so each tenant is reached. A tenant without due runs has no place: it saves up no turns and owes none.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.records import SECOND, Ask, Instant

from .rules import Rules

KEPT = 86_400 * SECOND  # a book that no worker uses is kept for this time


def book_of(ask: Ask) -> str:
    """Return the name of the book for workers of this kind."""
    tenants = None if ask.tenants is None else sorted(set(ask.tenants))
    return msgspec.json.encode((sorted(set(ask.types)), tenants, ask.runtime)).decode()


def kept_since(now: Instant) -> Instant:
    """Return the instant since which a book must have been used to be kept."""
    return now - KEPT


class Shares:
    """The book during one claim."""

    def __init__(self, rules: Rules, passed: int, places: dict[str, int], due: Iterable[str]) -> None:
        self._rules = rules
        self.passed = passed  # the place that was served last
        self.known = places
        self.places = {
            tenant: places[tenant] if tenant in places else passed + rules.stride(tenant) for tenant in due
        }

    def turn(self, tenant: str) -> tuple[int, str]:
        """Return the sort key of a tenant: the lowest is next."""
        return self.places[tenant], tenant

    def take(self, tenant: str) -> None:
        """Count one claim for this tenant. A tenant that was full for long does not catch up on missed
        turns."""
        self.passed = max(self.passed, self.places[tenant])
        self.places[tenant] = self.passed + self._rules.stride(tenant)

    def moved(self) -> dict[str, int]:
        """Return the places that are new or have changed."""
        return {tenant: at for tenant, at in self.places.items() if self.known.get(tenant) != at}

    def gone(self) -> list[str]:
        """Return tenants in the book that no longer have due runs."""
        return [tenant for tenant in self.known if tenant not in self.places]


def reweighed(before: Rules, after: Rules, tenants: Iterable[str]) -> list[str]:
    """Return tenants whose weight has changed. Their places were computed with another weight and are
    dropped."""
    return [tenant for tenant in tenants if before.stride(tenant) != after.stride(tenant)]
