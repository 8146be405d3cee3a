"""Limits and the registry: the settings, their usage, and the capacities that they leave for a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import RUNTIME, Ask, Hold, Instant, Limit, Registration, Tenant, tenant_name
from holdfast.stores.claiming.capacity import Capacities, Used
from holdfast.stores.claiming.rules import LimitRule, Rules, made_rule, shown_limit, shown_limits
from holdfast.stores.claiming.shares import Shares, book_of, kept_since, reweighed
from holdfast.stores.claiming.usage import (
    Book,
    Uses,
    counted,
    registered,
    rules_of,
    shares_of,
    spent,
    unpaused,
    with_claims,
)

if TYPE_CHECKING:
    from .rows import RunRow, State

Name = tuple[str, str]  # scope and name


@dataclass(slots=True)
class Limiting:
    """All settings, and their usage by claims."""

    registry: dict[str, Registration] = field(default_factory=dict)
    limits: dict[Name, LimitRule] = field(default_factory=dict)
    claims: dict[Name, list[Uses]] = field(default_factory=dict)
    books: dict[str, Book] = field(default_factory=dict)

    def rules(self) -> Rules:
        return rules_of(self.registry.values(), self.limits.values())

    def shares(self, rules: Rules, ask: Ask, due: Iterable[str], now: Instant) -> Shares:
        return shares_of(self.books.get(book_of(ask)), rules, due, now)


def capacities_of(state: State, now: Instant) -> Capacities:
    def leased(scope: str, name: str) -> int:
        return sum(row.status is Status.LEASED and _named(row, scope) == name for row in state.runs.values())

    def used(scope: str, name: str, rate: int, period: int) -> Used:
        return spent(state.limiting.claims.get((scope, name), ()), rate, period, now)

    return Capacities(state.limiting.rules(), now, leased, used)


def _named(row: RunRow, scope: str) -> str | None:
    return {"type": row.type, "tenant": row.tenant, "key": row.limit_key}[scope]


def note_turns(limiting: Limiting, ask: Ask, shares: Shares, now: Instant) -> None:
    """Store the places of the waiting tenants."""
    kept = {name: book for name, book in limiting.books.items() if book.used_at > kept_since(now)}
    limiting.books = {**kept, book_of(ask): Book(shares.passed, shares.places, now)}


def note_claims(state: State, taken: Capacities, now: Instant) -> None:
    """Record claims under a rate."""
    claims, rated = state.limiting.claims, list(taken.rated())
    for capacity in rated:
        name = capacity.scope, capacity.name
        claims[name] = with_claims(claims.get(name, ()), capacity, now)
    if rated:
        forget_claims(state.limiting, now)


def forget_claims(limiting: Limiting, now: Instant) -> int:
    """Remove claims that no rate counts any more. Return how many."""
    before = sum(map(len, limiting.claims.values()))
    kept = {name: counted(claims, now) for name, claims in limiting.claims.items()}
    limiting.claims = {name: claims for name, claims in kept.items() if claims}
    return before - sum(map(len, limiting.claims.values()))


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
    for rule in unpaused(limiting.limits.values(), now):
        _put(limiting, rule)
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
            registry = self._state.limiting.registry
            made = registry[name] = registered(registry.get(name), name, given, self._clock())
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
