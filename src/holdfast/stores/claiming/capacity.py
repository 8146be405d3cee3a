"""Capacity: how many more runs of a type, a tenant and a limit_key the limits allow now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.records import Hold, Instant, moment

from .rules import LimitRule, Rules


class Used(NamedTuple):
    """The claims that a rate counts now, and a function that returns when the rate allows one more."""

    claims: int
    free_at: Callable[[], Instant]


_UNUSED = Used(0, lambda: 0)

Leased = Callable[[str, str], int]  # (scope, name): the number of leased runs
Spent = Callable[[str, str, int, int], Used]  # (scope, name, rate, period): the claims that the rate counts


class Capacity:
    """Capacity of one name at one instant, minus the runs that the current claim takes."""

    __slots__ = ("_cap", "_leased", "_left", "_pause", "_rate", "_used", "name", "scope", "taken")

    def __init__(self, rules: list[LimitRule], name: tuple[str, str], now: Instant) -> None:
        self.scope, self.name = name
        self.taken = 0
        self._cap = next((rule for rule in rules if rule.concurrency is not None), None)
        self._rate = next((rule for rule in rules if rule.rate is not None), None)
        pauses = [rule for rule in rules if (rule.paused_until or 0) > now]
        self._pause = max(pauses, key=lambda rule: rule.paused_until or 0, default=None)
        self._leased, self._used = 0, _UNUSED
        self._left: float = math.inf if self._pause is None else 0

    def count(self, leased: Leased, spent: Spent) -> None:
        """Look up the usage, as far as it is limited."""
        if self._cap is not None:
            self._leased = leased(self.scope, self.name)
            self._left = min(self._left, (self._cap.concurrency or 0) - self._leased)
        if self._rate is not None:
            self._used = spent(self.scope, self.name, self._rate.rate or 0, self._rate.period or 0)
            self._left = min(self._left, (self._rate.rate or 0) - self._used.claims)

    @property
    def period(self) -> int | None:
        """The period over which claims are counted, if there is a rate."""
        return None if self._rate is None else self._rate.period

    @property
    def full(self) -> bool:
        """True when no further run of this name may be claimed now."""
        return self.taken >= self._left

    @property
    def _at_concurrency(self) -> bool:
        return self._cap is not None and self._leased >= (self._cap.concurrency or 0)

    @property
    def _at_rate(self) -> bool:
        return self._rate is not None and self._used.claims >= (self._rate.rate or 0)

    @property
    def opens_at(self) -> Instant | None:
        """The instant from which one more may be claimed. None: when a leased run of this name ends."""
        if self._at_concurrency:
            return None
        paused = 0 if self._pause is None else self._pause.paused_until or 0
        return max(paused, self._used.free_at() if self._at_rate else 0)

    def holds(self) -> Iterator[Hold]:
        """Yield the reasons why no further run may be claimed."""
        if self._pause is not None:
            yield self._hold("paused", self._pause, until=moment(self._pause.paused_until or 0))
        if self._cap is not None and self._at_concurrency:
            yield self._hold("concurrency", self._cap, used=self._leased, allowed=self._cap.concurrency)
        if self._rate is not None and self._at_rate:
            until, used = moment(self._used.free_at()), self._used.claims
            yield self._hold("rate", self._rate, used=used, allowed=self._rate.rate, until=until)

    def _hold(self, why: str, rule: LimitRule, **fields: object) -> Hold:
        return Hold(why=why, scope=self.scope, name=self.name, rule=rule.name, **fields)  # type: ignore[arg-type]  # ours


class Capacities:
    """Capacities that one claim looks up. Each is counted once, and reduced by the runs that the claim
    takes."""

    def __init__(self, rules: Rules, now: Instant, leased: Leased, spent: Spent) -> None:
        self.rules, self._now = rules, now
        self._leased, self._spent = leased, spent
        self._known: dict[tuple[str, str], Capacity] = {}

    def of(self, scope: str, name: str) -> Capacity:
        capacity = self._known.get((scope, name))
        if capacity is None:
            capacity = Capacity(list(self.rules.of(scope, name)), (scope, name), self._now)
            capacity.count(self._leased, self._spent)
            self._known[scope, name] = capacity
        return capacity

    def of_run(self, type_: str, tenant: str | None, key: str | None) -> list[Capacity]:
        """Return the capacities that such a run needs. A tenant or key of None is left out."""
        named = (("type", type_), ("tenant", tenant), ("key", key))
        return [
            self.of(scope, name) for scope, name in named if name is not None and scope in self.rules.scopes
        ]

    def full(self, type_: str, tenant: str | None = None, key: str | None = None) -> bool:
        """Return True when such a run may not be claimed now. Called for every run read, so it builds no
        list."""
        scopes = self.rules.scopes
        return (
            ("type" in scopes and self.of("type", type_).full)
            or (tenant is not None and "tenant" in scopes and self.of("tenant", tenant).full)
            or (key is not None and "key" in scopes and self.of("key", key).full)
        )

    def take(self, type_: str, tenant: str, key: str | None) -> None:
        for capacity in self.of_run(type_, tenant, key):
            capacity.taken += 1

    def rated(self) -> Iterator[Capacity]:
        """Return the capacities with a rate of which this claim has taken runs."""
        return (one for one in self._known.values() if one.taken and one.period is not None)

    def holds(self, type_: str, tenant: str, key: str | None, runtime: str) -> tuple[Hold, ...]:
        """Return every reason why such a run cannot be claimed."""
        capacities = self.of_run(type_, tenant, key)
        return (*self.rules.holds(type_, runtime), *(hold for one in capacities for hold in one.holds()))

    def opens_at(self, type_: str, tenant: str | None = None, key: str | None = None) -> Instant | None:
        """Return the instant from which such a run may be claimed. None: not before another run ends."""
        times = [capacity.opens_at for capacity in self.of_run(type_, tenant, key)]
        return None if None in times else max((at for at in times if at is not None), default=0)
