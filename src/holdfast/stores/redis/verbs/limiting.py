"""Limits and the registry: the settings, their usage, and the capacities that they leave for a claim.

Settings and usage are few rows. Everything that changes them grows one number, `limits`, and so does each
claim under a limit: two claims at once cannot both take the last place.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

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
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.names import Names, parted, unpart
from holdfast.stores.redis.snapshot import Command, Snapshot
from holdfast.stores.redis.view import RedisView

_REGISTRATION = msgspec.json.Decoder(Registration)
_RULE = msgspec.json.Decoder(LimitRule)
_USES = msgspec.json.Decoder(list[Uses])
_BOOK = msgspec.json.Decoder(Book)
_REVISION = "limits"
_SCOPES = ("type", "tenant", "key")
Kind = tuple[str, str | None, str | None]  # type, tenant and limit key of runs


def commands(names: Names) -> list[Command]:
    """Return the commands that read all settings. The revision goes first: a setting that is changed in
    between makes it stale."""
    return [("HGET", names.numbers, _REVISION), ("HGETALL", names("registry")), ("HGETALL", names("limits"))]


class Limiting:
    """All settings and their usage, for one verb."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, names = snapshot, snapshot.names
        self._limits_key, self._uses_key, self._books_key = names("limits"), names("claims"), names("books")
        self._prefetched: frozenset[Kind] = frozenset()
        revision, registry, limits = snapshot.all(commands(names))
        self.revision: str = revision or "0"
        self.registry: dict[str, Registration] = {
            name: snapshot.decoded(text, partial(_REGISTRATION.decode, text))
            for name, text in registry.items()
        }
        rules = (snapshot.decoded(text, partial(_RULE.decode, text)) for text in limits.values())
        self.limits: dict[tuple[str, str], LimitRule] = {(rule.scope, rule.name): rule for rule in rules}

    def depend(self) -> None:
        """Let the changes be applied only if nobody has changed limits, or claimed under one, meanwhile."""
        self._snapshot.guarded("HGET", self._snapshot.names.numbers, _REVISION)
        self._snapshot.do("HINCRBY", self._snapshot.names.numbers, _REVISION, 1)

    def depend_each(self) -> None:
        """Let each change be applied only if nobody has changed limits or the registry meanwhile. Claims
        without a limit do not disturb each other."""
        command = ("HGET", self._snapshot.names.numbers, _REVISION)
        answer = self._snapshot.read(*command)
        for group in self._snapshot.groups:
            group.guard(command, answer)

    def rules(self) -> Rules:
        return rules_of(self.registry.values(), self.limits.values())

    # Usage.

    def _uses(self, scope: str, name: str) -> list[Uses]:
        text = self._snapshot.read("HGET", self._uses_key, parted(scope, name))
        return [] if text is None else _USES.decode(text)

    def capacities(self, now: Instant) -> Capacities:
        """Return the capacities that are left now."""

        def leased(scope: str, name: str) -> int:
            found: int = self._snapshot.read("ZCARD", self._snapshot.names.of("leased", scope, name))
            return found

        def used(scope: str, name: str, rate: int, period: int) -> Used:
            return spent(self._uses(scope, name), rate, period, now)

        return Capacities(self._snapshot.decoded(Rules, self.rules), now, leased, used)

    def prefetch(self, capacities: Capacities, kinds: Iterable[Kind]) -> None:
        """Read together the usage that decides about runs of these types, tenants and limit keys."""
        rules, commands = capacities.rules, list[Command]()
        known, self._prefetched = self._prefetched, self._prefetched | {*kinds}
        for scope, name in dict.fromkeys(
            named for kind in self._prefetched - known for named in zip(_SCOPES, kind, strict=True)
        ):
            if name is not None and scope in rules.scopes:
                applying = list(rules.of(scope, name))
                if any(rule.concurrency is not None for rule in applying):
                    commands.append(("ZCARD", self._snapshot.names.of("leased", scope, name)))
                if any(rule.rate is not None for rule in applying):
                    commands.append(("HGET", self._uses_key, parted(scope, name)))
        self._snapshot.prefetch(commands)

    def note_claims(self, taken: Capacities, now: Instant) -> None:
        """Record claims under a rate."""
        for capacity in list(taken.rated()):
            uses = with_claims(self._uses(capacity.scope, capacity.name), capacity, now)
            self._write_uses(parted(capacity.scope, capacity.name), counted(uses, now))

    def _write_uses(self, field: str, uses: list[Uses]) -> None:
        if uses:
            self._snapshot.do("HSET", self._uses_key, field, msgspec.json.encode(uses).decode())
        else:
            self._snapshot.do("HDEL", self._uses_key, field)

    def forget_claims(self, now: Instant) -> int:
        """Remove claims that no rate counts any more. Return how many."""
        gone = 0
        for field, text in self._snapshot.read("HGETALL", self._uses_key).items():
            uses = _USES.decode(text)
            kept = counted(uses, now)
            gone += len(uses) - len(kept)
            if len(kept) < len(uses):
                self._write_uses(field, kept)
        return gone

    # Shares.

    def shares(self, rules: Rules, ask: Ask, due: Iterable[str], now: Instant) -> Shares:
        if not rules.weighs:
            return Shares(rules, 0, {}, due)
        text = self._snapshot.read("HGETALL", self._books_key).get(book_of(ask))
        return shares_of(None if text is None else _BOOK.decode(text), rules, due, now)

    def note_turns(self, ask: Ask, shares: Shares, now: Instant) -> None:
        """Store the places of the waiting tenants, and forget books that nobody uses."""
        for name, text in self._snapshot.read("HGETALL", self._books_key).items():
            if _BOOK.decode(text).used_at <= kept_since(now):
                self._snapshot.do("HDEL", self._books_key, name)
        book = msgspec.json.encode(Book(shares.passed, shares.places, now)).decode()
        self._snapshot.do("HSET", self._books_key, book_of(ask), book)

    # Settings.

    def put(self, rule: LimitRule) -> None:
        """Store a limit. One that limits nothing is removed."""
        name = parted(rule.scope, rule.name)
        if rule == LimitRule(rule.scope, rule.name):
            self.limits.pop((rule.scope, rule.name), None)
            self._snapshot.do("HDEL", self._limits_key, name)
        else:
            self.limits[rule.scope, rule.name] = rule
            self._snapshot.do("HSET", self._limits_key, name, msgspec.json.encode(rule).decode())

    def forget(self, before: Rules, changed: LimitRule) -> None:
        """Forget claims that were counted under another rate, and places that were computed with another
        weight."""
        after = self.rules()
        for field in self._snapshot.read("HKEYS", self._uses_key):
            scope, _, name = field.partition(":")
            name = unpart(name)
            if scope == changed.scope and before.rate(scope, name) != after.rate(scope, name):
                self._snapshot.do("HDEL", self._uses_key, field)
        for field, text in self._snapshot.read("HGETALL", self._books_key).items():
            book = _BOOK.decode(text)
            gone = reweighed(before, after, tuple(book.places))
            if not after.weighs:
                self._snapshot.do("HDEL", self._books_key, field)
            elif gone:
                places = {tenant: at for tenant, at in book.places.items() if tenant not in gone}
                kept = msgspec.json.encode(book._replace(places=places)).decode()
                self._snapshot.do("HSET", self._books_key, field, kept)


class LimitVerbs(Core):
    """The verbs of limits and the registry, as a mixin of the store."""

    async def registry(self) -> list[Registration]:
        found = await self._read(lambda snapshot: Limiting(snapshot).registry)
        return sorted(found.values(), key=lambda one: one.workflow_name)

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        given: dict[str, Any] = {
            "runtime": runtime,
            "is_enabled": enabled,
            "description": description,
            "intent_type": intent_type,
        }

        def register(snapshot: Snapshot) -> Registration:
            book = Limiting(snapshot)
            made = registered(book.registry.get(name), name, given, snapshot.now)
            snapshot.do("HSET", snapshot.names("registry"), name, msgspec.json.encode(made).decode())
            book.depend()
            snapshot.is_news = True
            return made

        return await self._change(register)

    async def unregister(self, name: str) -> bool:
        def unregister(snapshot: Snapshot) -> bool:
            book = Limiting(snapshot)
            if name not in book.registry:
                return False
            snapshot.do("HDEL", snapshot.names("registry"), name)
            book.depend()
            snapshot.is_news = True
            return True

        return await self._change(unregister)

    async def limits(self) -> list[Limit]:
        return await self._read(
            lambda snapshot: shown_limits(Limiting(snapshot).limits.values(), snapshot.now)
        )

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

        def limit(snapshot: Snapshot) -> Limit:
            book = Limiting(snapshot)
            before = book.rules()
            known = book.limits.get((scope, name), LimitRule(scope, name))
            made = rule._replace(paused_until=known.paused_until)
            book.put(made)
            book.forget(before, made)
            book.depend()
            snapshot.is_news = True
            return shown_limit(made, snapshot.now)

        return await self._change(limit)

    async def unlimit(self, scope: str, name: str) -> bool:
        def unlimit(snapshot: Snapshot) -> bool:
            book = Limiting(snapshot)
            before = book.rules()
            there = (scope, name) in book.limits
            book.put(LimitRule(scope, name))
            book.forget(before, LimitRule(scope, name))
            book.depend()
            snapshot.is_news = True
            return there

        return await self._change(unlimit)

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        def pause(snapshot: Snapshot) -> Limit:
            book, now = Limiting(snapshot), snapshot.now
            at = now + micros(delay_seconds or 0) if until is None else until
            for rule in unpaused(book.limits.values(), now):
                book.put(rule)
            rule = book.limits.get(("key", key), LimitRule("key", key))
            paused = rule._replace(paused_until=max(rule.paused_until or 0, at))
            book.put(paused)
            book.depend()
            return shown_limit(paused, now)

        return await self._change(pause)

    async def resume_key(self, key: str) -> bool:
        def resume(snapshot: Snapshot) -> bool:
            book = Limiting(snapshot)
            rule = book.limits.get(("key", key), LimitRule("key", key))
            book.put(rule._replace(paused_until=None))
            book.depend()
            snapshot.is_news = True
            return rule.paused_until is not None and rule.paused_until > snapshot.now

        return await self._change(resume)

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = RUNTIME) -> tuple[Hold, ...]:
        def held(snapshot: Snapshot) -> tuple[Hold, ...]:
            row = RedisView(snapshot).run(run)
            name = tenant_name(tenant)
            if row is None or row.deleted_at is not None or name not in {None, row.tenant}:
                return ()
            if row.status != "pending":
                return ()
            capacities = Limiting(snapshot).capacities(snapshot.now)
            return capacities.holds(row.type, row.tenant, row.limit_key, runtime)

        return await self._read(held)
