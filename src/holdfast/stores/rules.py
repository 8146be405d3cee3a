"""Which registry entry and which limits concern a run, and how much room they leave; for every store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.machine.durations import micros
from holdfast.records import SCOPES, SECOND, Hold, Instant, Limit, moment

PREFIX = "%"
# What one claim costs a tenant of weight 1. Whole numbers, or shares would differ from store to store.
_STRIDE = 1_000_000


class Entry(NamedTuple):
    """The registry's word on a type."""

    name: str
    runtime: str
    enabled: bool


class Rule(NamedTuple):
    """A limit as it is kept; `paused_until` is a key's."""

    scope: str
    name: str
    concurrency: int | None = None
    rate: int | None = None
    period: int | None = None  # microseconds
    weight: float | None = None
    paused_until: Instant | None = None


class Used(NamedTuple):
    """How many claims count now; and, if asked, from when on one more is within the rate."""

    claims: int
    free_at: Callable[[], Instant]


_UNUSED = Used(0, lambda: 0)

Leased = Callable[[str, str], int]  # how many runs of that scope and name are leased
Spent = Callable[[str, str, int, int], Used]  # of that scope and name, for a rate and its period


class Rules:
    """All that is set, ready to be asked."""

    def __init__(self, entries: Iterable[Entry], limits: Iterable[Rule]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._rules = {(rule.scope, rule.name): rule for rule in limits}
        rules = self._rules.values()
        self._prefixes = {
            scope: sorted(
                (rule for rule in rules if rule.scope == scope and rule.name.endswith(PREFIX)),
                key=lambda rule: -len(rule.name),
            )
            for scope in SCOPES
        }
        self.weighs = any(rule.weight is not None for rule in rules)
        # Where anything can be full: names of other scopes need not be told apart.
        self.scopes = frozenset(rule.scope for rule in rules if _narrows(rule))

    def entry(self, type_: str) -> Entry | None:
        """That of the type itself, else that of its bare name."""
        return self._entries.get(type_) or self._entries.get(type_.rpartition(".v")[0])

    def open_to(self, type_: str, runtime: str) -> bool:
        """Whether the registry lets this runtime take it."""
        entry = self.entry(type_)
        return entry is None or (entry.enabled and entry.runtime == runtime)

    def holds(self, type_: str, runtime: str) -> Iterator[Hold]:
        """What of the registry is in the way, in words."""
        entry = self.entry(type_)
        if entry is not None and not entry.enabled:
            yield Hold(why="disabled", name=type_, rule=entry.name)
        if entry is not None and entry.runtime != runtime:
            yield Hold(why="runtime", name=type_, rule=entry.name, runtime=entry.runtime)

    def of(self, scope: str, name: str) -> Iterator[Rule]:
        """Those that speak for this name, the most specific first."""
        if (exact := self._rules.get((scope, name))) is not None:
            yield exact
        for rule in self._prefixes[scope]:
            if rule is not exact and name.startswith(rule.name[:-1]):
                yield rule

    def rate(self, scope: str, name: str) -> tuple[int | None, int | None]:
        """How many claims in which period, of those that speak for this name."""
        return next(
            ((rule.rate, rule.period) for rule in self.of(scope, name) if rule.rate is not None), (None, None)
        )

    def stride(self, tenant: str) -> int:
        """What a claim costs a tenant: the less, the more weight it has."""
        weight = next((rule.weight for rule in self.of("tenant", tenant) if rule.weight is not None), 1.0)
        return max(1, round(_STRIDE / weight))


def made_rule(
    scope: str, name: str, concurrency: int | None, rate: tuple[int, float] | None, weight: float | None
) -> Rule:
    """A limit as it is given."""
    count, seconds = rate if rate is not None else (None, None)
    return Rule(scope, name, concurrency, count, None if seconds is None else micros(seconds), weight)


def shown_limit(rule: Rule, now: Instant) -> Limit:
    """As people see it; a pause that is over is none."""
    until = rule.paused_until
    return Limit(
        scope=rule.scope,
        name=rule.name,
        concurrency=rule.concurrency,
        rate=rule.rate,
        period_seconds=None if rule.period is None else rule.period / SECOND,
        weight=rule.weight,
        paused_until=None if until is None or until <= now else moment(until),
    )


def shown_limits(rules: Iterable[Rule], now: Instant) -> list[Limit]:
    """By scope and name, those that say something still."""
    shown = [shown_limit(rule, now) for rule in sorted(rules, key=lambda rule: rule[:2])]
    return [one for one in shown if one != Limit(scope=one.scope, name=one.name)]


def _narrows(rule: Rule) -> bool:
    return rule.concurrency is not None or rule.rate is not None or rule.paused_until is not None


class Room:
    """What the rules leave one name at an instant, less what a claim takes of it meanwhile."""

    __slots__ = ("_cap", "_leased", "_left", "_pause", "_rate", "_used", "name", "scope", "taken")

    def __init__(self, rules: list[Rule], name: tuple[str, str], now: Instant) -> None:
        self.scope, self.name = name
        self.taken = 0
        self._cap = next((rule for rule in rules if rule.concurrency is not None), None)
        self._rate = next((rule for rule in rules if rule.rate is not None), None)
        pauses = [rule for rule in rules if (rule.paused_until or 0) > now]
        self._pause = max(pauses, key=lambda rule: rule.paused_until or 0, default=None)
        self._leased, self._used = 0, _UNUSED
        self._left: float = math.inf if self._pause is None else 0

    def count(self, leased: Leased, spent: Spent) -> None:
        """Look up what is used, of that which is limited."""
        if self._cap is not None:
            self._leased = leased(self.scope, self.name)
            self._left = min(self._left, (self._cap.concurrency or 0) - self._leased)
        if self._rate is not None:
            self._used = spent(self.scope, self.name, self._rate.rate or 0, self._rate.period or 0)
            self._left = min(self._left, (self._rate.rate or 0) - self._used.claims)

    @property
    def period(self) -> int | None:
        """Over which claims are counted, if they are."""
        return None if self._rate is None else self._rate.period

    @property
    def full(self) -> bool:
        """Whether nothing more of this name may be taken now."""
        return self.taken >= self._left

    @property
    def _crowded(self) -> bool:
        return self._cap is not None and self._leased >= (self._cap.concurrency or 0)

    @property
    def _hasty(self) -> bool:
        return self._rate is not None and self._used.claims >= (self._rate.rate or 0)

    @property
    def opens_at(self) -> Instant | None:
        """From when on one may be taken; None: when a run of this name ends, whenever that is."""
        if self._crowded:
            return None
        paused = 0 if self._pause is None else self._pause.paused_until or 0
        return max(paused, self._used.free_at() if self._hasty else 0)

    def holds(self) -> Iterator[Hold]:
        """What is in the way, in words."""
        if self._pause is not None:
            yield self._hold("paused", self._pause, until=moment(self._pause.paused_until or 0))
        if self._cap is not None and self._crowded:
            yield self._hold("concurrency", self._cap, used=self._leased, allowed=self._cap.concurrency)
        if self._rate is not None and self._hasty:
            until, used = moment(self._used.free_at()), self._used.claims
            yield self._hold("rate", self._rate, used=used, allowed=self._rate.rate, until=until)

    def _hold(self, why: str, rule: Rule, **fields: object) -> Hold:
        return Hold(why=why, scope=self.scope, name=self.name, rule=rule.name, **fields)  # type: ignore[arg-type]  # ours


class Rooms:
    """The rooms that one claim looks into, each counted once, and what it has taken of them."""

    def __init__(self, rules: Rules, now: Instant, leased: Leased, spent: Spent) -> None:
        self.rules, self._now = rules, now
        self._leased, self._spent = leased, spent
        self._rooms: dict[tuple[str, str], Room] = {}

    def of(self, scope: str, name: str) -> Room:
        room = self._rooms.get((scope, name))
        if room is None:
            room = Room(list(self.rules.of(scope, name)), (scope, name), self._now)
            room.count(self._leased, self._spent)
            self._rooms[scope, name] = room
        return room

    def around(self, type_: str, tenant: str | None, key: str | None) -> list[Room]:
        """Those that such a run has to fit into; None: not told apart, or it has none."""
        named = (("type", type_), ("tenant", tenant), ("key", key))
        return [
            self.of(scope, name) for scope, name in named if name is not None and scope in self.rules.scopes
        ]

    def full(self, type_: str, tenant: str | None = None, key: str | None = None) -> bool:
        """Whether such a run may not be taken now. Asked of every run that is read: no list is made of it."""
        scopes = self.rules.scopes
        return (
            ("type" in scopes and self.of("type", type_).full)
            or (tenant is not None and "tenant" in scopes and self.of("tenant", tenant).full)
            or (key is not None and "key" in scopes and self.of("key", key).full)
        )

    def take(self, type_: str, tenant: str, key: str | None) -> None:
        for room in self.around(type_, tenant, key):
            room.taken += 1

    def rated(self) -> Iterator[Room]:
        """Those of which claims are counted, where there were some."""
        return (room for room in self._rooms.values() if room.taken and room.period is not None)

    def holds(self, type_: str, tenant: str, key: str | None, runtime: str) -> tuple[Hold, ...]:
        """All that keeps such a run from being taken."""
        rooms = self.around(type_, tenant, key)
        return (*self.rules.holds(type_, runtime), *(hold for room in rooms for hold in room.holds()))

    def opens_at(self, type_: str, tenant: str | None = None, key: str | None = None) -> Instant | None:
        """From when on such a run may be taken; None: not before another one ends."""
        times = [room.opens_at for room in self.around(type_, tenant, key)]
        return None if None in times else max((at for at in times if at is not None), default=0)
