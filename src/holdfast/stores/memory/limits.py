"""Limits and the registry: the settings, their usage, and the capacities that they leave for a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import RUNTIME, Ask, Hold, Instant, Limit, Registration, Tenant, moment, tenant_name
from holdfast.stores.claiming.capacity import Capacities, Used
from holdfast.stores.claiming.rules import Entry, LimitRule, Rules, made_rule, shown_limit, shown_limits
from holdfast.stores.claiming.shares import Shares, book_of, kept_since, reweighed

if TYPE_CHECKING:
    from .rows import RunRow, State

Name = tuple[str, str]  # scope and name


class Uses(NamedTuple):
    """Claims that a rate counts: their time, their number, and when they stop counting."""

    at: Instant
    taken: int
    gone_at: Instant


class Book(NamedTuple):
    """The turns of one kind of worker: the place served last, the places of waiting tenants, and the last
    use."""

    passed: int
    places: dict[str, int]
    used_at: Instant


@dataclass(slots=True)
class Limiting:
    """All settings, and their usage by claims."""

    registry: dict[str, Registration] = field(default_factory=dict)
    limits: dict[Name, LimitRule] = field(default_factory=dict)
    claims: dict[Name, list[Uses]] = field(default_factory=dict)
    books: dict[str, Book] = field(default_factory=dict)

    def rules(self) -> Rules:
        entries = (Entry(one.workflow_name, one.runtime, one.is_enabled) for one in self.registry.values())
        return Rules(entries, self.limits.values())

    def shares(self, rules: Rules, ask: Ask, due: Iterable[str], now: Instant) -> Shares:
        book = self.books.get(book_of(ask))
        if book is None or book.used_at <= kept_since(now):
            return Shares(rules, 0, {}, due)
        return Shares(rules, book.passed, book.places, due)


def capacities_of(state: State, now: Instant) -> Capacities:
    def leased(scope: str, name: str) -> int:
        return sum(row.status is Status.LEASED and _named(row, scope) == name for row in state.runs.values())

    def spent(scope: str, name: str, rate: int, period: int) -> Used:
        known = state.limiting.claims.get((scope, name), ())
        # A claim more than one period in the future was made with a wrong clock.
        counted = [one for one in known if now - period < one.at <= now + period]
        left = count = sum(one.taken for one in counted)
        for one in counted:
            left -= one.taken
            if left < rate:
                return Used(count, partial(int, one.at + period))
        return Used(count, partial(int, now))

    return Capacities(state.limiting.rules(), now, leased, spent)


def _named(row: RunRow, scope: str) -> str | None:
    return {"type": row.type, "tenant": row.tenant, "key": row.limit_key}[scope]


def note_turns(limiting: Limiting, ask: Ask, shares: Shares, now: Instant) -> None:
    """Store the places of the waiting tenants."""
    kept = {name: book for name, book in limiting.books.items() if book.used_at > kept_since(now)}
    limiting.books = {**kept, book_of(ask): Book(shares.passed, shares.places, now)}


def note_claims(state: State, taken: Capacities, now: Instant) -> None:
    """Record claims under a rate, never earlier than the last one, even when the clock was turned back."""
    claims, rated = state.limiting.claims, list(taken.rated())
    for capacity in rated:
        name, period = (capacity.scope, capacity.name), capacity.period or 0
        known = [one for one in claims.get(name, ()) if one.at <= now + period]
        at = max([now, *(one.at for one in known)])
        claims[name] = [*known, Uses(at, capacity.taken, at + period)]
    if rated:
        forget_claims(state.limiting, now)


def forget_claims(limiting: Limiting, now: Instant) -> int:
    """Remove claims that no rate counts any more. Return how many."""
    before = sum(map(len, limiting.claims.values()))
    kept = {name: [one for one in claims if one.gone_at > now] for name, claims in limiting.claims.items()}
    limiting.claims = {name: claims for name, claims in kept.items() if claims}
    return before - sum(map(len, limiting.claims.values()))


def register(limiting: Limiting, name: str, now: Instant, given: dict[str, Any]) -> Registration:
    at = moment(now)
    known = limiting.registry.get(name) or Registration(workflow_name=name, created_at=at, updated_at=at)
    changed = {field: value for field, value in given.items() if value is not None}
    made = limiting.registry[name] = msgspec.structs.replace(known, updated_at=at, **changed)
    return made


def set_limit(limiting: Limiting, rule: LimitRule) -> LimitRule:
    """Set a limit and keep its pause. A limit that limits nothing is removed."""
    name, before = (rule.scope, rule.name), limiting.rules()
    made = rule._replace(paused_until=limiting.limits.get(name, LimitRule(*name)).paused_until)
    _put(limiting, made)
    _forget(limiting, before, made)
    return made


def unlimit(limiting: Limiting, scope: str, name: str) -> bool:
    before = limiting.rules()
    there = limiting.limits.pop((scope, name), None) is not None
    _forget(limiting, before, LimitRule(scope, name))
    return there


def _put(limiting: Limiting, rule: LimitRule) -> None:
    limiting.limits[rule.scope, rule.name] = rule
    if rule == LimitRule(rule.scope, rule.name):
        del limiting.limits[rule.scope, rule.name]


def _forget(limiting: Limiting, before: Rules, changed: LimitRule) -> None:
    """Forget claims that were counted under another rate, and places that were computed with another
    weight."""
    after = limiting.rules()
    for scope, name in tuple(limiting.claims):
        if scope == changed.scope and before.rate(scope, name) != after.rate(scope, name):
            del limiting.claims[scope, name]
    if not after.weighs:
        limiting.books = {}
    for book in limiting.books.values():
        for tenant in reweighed(before, after, tuple(book.places)):
            del book.places[tenant]


def pause_key(limiting: Limiting, key: str, until: Instant, now: Instant) -> LimitRule:
    for rule in tuple(limiting.limits.values()):
        if rule.paused_until is not None and rule.paused_until <= now:
            _put(limiting, rule._replace(paused_until=None))
    rule = limiting.limits.get(("key", key), LimitRule("key", key))
    paused = rule._replace(paused_until=max(rule.paused_until or 0, until))
    _put(limiting, paused)
    return paused


def resume_key(limiting: Limiting, key: str, now: Instant) -> bool:
    rule = limiting.limits.get(("key", key), LimitRule("key", key))
    _put(limiting, rule._replace(paused_until=None))
    return rule.paused_until is not None and rule.paused_until > now


def held_back(state: State, run: UUID, tenant: str | None, runtime: str, now: Instant) -> tuple[Hold, ...]:
    row = state.seen(run, tenant)
    if row is None or row.status is not Status.PENDING:
        return ()
    return capacities_of(state, now).holds(row.type, row.tenant, row.limit_key, runtime)


class LimitVerbs:
    """The verbs of limits and the registry, as a mixin of the store."""

    _state: State
    _lock: AbstractContextManager[object]
    _clock: Callable[[], Instant]
    _hint: Callable[[], None]

    async def registry(self) -> list[Registration]:
        with self._lock:
            return sorted(self._state.limiting.registry.values(), key=lambda one: one.workflow_name)

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        given = {
            "runtime": runtime,
            "is_enabled": enabled,
            "description": description,
            "intent_type": intent_type,
        }
        with self._lock:
            made = register(self._state.limiting, name, self._clock(), given)
            self._hint()
            return made

    async def unregister(self, name: str) -> bool:
        with self._lock:
            there = self._state.limiting.registry.pop(name, None) is not None
            self._hint()
            return there

    async def limits(self) -> list[Limit]:
        with self._lock:
            return shown_limits(self._state.limiting.limits.values(), self._clock())

    async def limit(
        self,
        scope: str,
        name: str,
        *,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        weight: float | None = None,
    ) -> Limit:
        rule = made_rule(scope, name, concurrency, rate, weight)
        with self._lock:
            made = set_limit(self._state.limiting, rule)
            self._hint()
            return shown_limit(made, self._clock())

    async def unlimit(self, scope: str, name: str) -> bool:
        with self._lock:
            there = unlimit(self._state.limiting, scope, name)
            self._hint()
            return there

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        with self._lock:
            now = self._clock()
            at = now + micros(delay_seconds or 0) if until is None else until
            return shown_limit(pause_key(self._state.limiting, key, at, now), now)

    async def resume_key(self, key: str) -> bool:
        with self._lock:
            paused = resume_key(self._state.limiting, key, self._clock())
            self._hint()
            return paused

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = RUNTIME) -> tuple[Hold, ...]:
        with self._lock:
            return held_back(self._state, run, tenant_name(tenant), runtime, self._clock())
