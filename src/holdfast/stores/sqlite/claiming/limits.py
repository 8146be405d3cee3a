"""The verbs that set and show limits and the registry. `limited` applies them to a claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.machine.durations import micros
from holdfast.records import RUNTIME, Hold, Instant, Limit, Registration, Tenant, moment, tenant_name
from holdfast.stores.claiming.rules import PREFIX, LimitRule, Rules, made_rule, shown_limit, shown_limits
from holdfast.stores.claiming.shares import reweighed
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.sql import statements

from .capacity import capacities_of, rules_of, rules_revision

if TYPE_CHECKING:
    from holdfast.stores.sqlite.connection.writer import Work

T = TypeVar("T")

_SQL = statements("claiming/limits")
_LAST_CHARACTER = "\U0010ffff"


def _registration(row: Row) -> Registration:
    name, runtime, enabled, description, intent_type, created_at, updated_at = row
    return Registration(
        workflow_name=name,
        runtime=runtime,
        is_enabled=bool(enabled),
        description=description,
        intent_type=intent_type,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
    )


def registry(db: Database) -> list[Registration]:
    return [_registration(row) for row in db.all(_SQL["registry"])]


def register(db: Database, now: Instant, given: dict[str, Any]) -> Registration:
    row = db.one(_SQL["register"], {**given, "now": now})
    assert row is not None
    return _registration(row)


def unregister(db: Database, name: str) -> bool:
    db.run(_SQL["unregister"], (name,))
    return db.changes() > 0


def _rules(db: Database) -> list[LimitRule]:
    return [LimitRule(*row) for row in db.all(_SQL["limits"])]


def _rule(db: Database, scope: str, name: str) -> LimitRule:
    row = db.one(_SQL["limit"], (scope, name))
    return LimitRule(scope, name) if row is None else LimitRule(*row)


def set_limit(db: Database, now: Instant, rule: LimitRule) -> LimitRule:
    """Set a limit and keep its pause. A limit that limits nothing is removed."""
    before = rules_of(db, rules_revision(db))
    made = rule._replace(paused_until=_rule(db, rule.scope, rule.name).paused_until)
    _put(db, now, made)
    _forget(db, before, made)
    return made


def unlimit(db: Database, scope: str, name: str) -> bool:
    before = rules_of(db, rules_revision(db))
    db.run(_SQL["remove"], (scope, name))
    there = db.changes() > 0
    if there:
        _forget(db, before, LimitRule(scope, name))
    return there


def _put(db: Database, now: Instant, rule: LimitRule) -> None:
    if rule == LimitRule(rule.scope, rule.name):
        db.run(_SQL["remove"], (rule.scope, rule.name))
    else:
        db.run(_SQL["put"], (*rule, now))


def _forget(db: Database, before: Rules, changed: LimitRule) -> None:
    """Forget claims that were counted under another rate, and places that were computed with another
    weight."""
    after, scope, name = rules_of(db, rules_revision(db)), changed.scope, changed.name
    since, beyond = (name[:-1], name[:-1] + _LAST_CHARACTER) if name.endswith(PREFIX) else (name, name)
    used = [row[0] for row in db.all(_SQL["used_names"], {"scope": scope, "since": since, "beyond": beyond})]
    others = [one for one in used if before.rate(scope, one) != after.rate(scope, one)]
    if others:
        db.run(_SQL["forget_uses"], {"scope": scope, "names": text(others)})
    if scope == "tenant":
        waiting = () if not after.weighs else (row[0] for row in db.all(_SQL["waiting"]))
        db.run(_SQL["forget_places"], (after.weighs, text(reweighed(before, after, waiting))))
        db.run(_SQL["forget_books"], (after.weighs,))


def pause_key(db: Database, now: Instant, key: str, until: Instant) -> LimitRule:
    for row in db.all(_SQL["over"], (now,)):
        _put(db, now, LimitRule(*row)._replace(paused_until=None))
    rule = _rule(db, "key", key)
    paused = rule._replace(paused_until=max(rule.paused_until or 0, until))
    _put(db, now, paused)
    return paused


def resume_key(db: Database, now: Instant, key: str) -> bool:
    rule = _rule(db, "key", key)
    if rule.paused_until is not None:
        _put(db, now, rule._replace(paused_until=None))
    return rule.paused_until is not None and rule.paused_until > now


def held_back(db: Database, now: Instant, run: UUID, tenant: str | None, runtime: str) -> tuple[Hold, ...]:
    row, revision = db.one(_SQL["run"], (str(run),)), rules_revision(db)
    if row is None or revision is None or tenant not in {None, row[1]}:
        return ()
    type_, owner, key = row
    return capacities_of(db, now, rules_of(db, revision)).holds(type_, owner, key, runtime)


class LimitVerbs:
    """The verbs of limits and the registry, as a mixin of the store."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def registry(self) -> list[Registration]:
        return self._read(registry)

    async def register(
        self,
        name: str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        given = {"name": name, "runtime": runtime, "enabled": enabled}
        given |= {"description": description, "intent_type": intent_type}
        return await self._write(lambda db, now: register(db, now, given), news=True)

    async def unregister(self, name: str) -> bool:
        return await self._write(lambda db, _: unregister(db, name), news=True)

    async def limits(self) -> list[Limit]:
        return shown_limits(self._read(_rules), self._clock())

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
        made = await self._write(lambda db, now: set_limit(db, now, rule), news=True)
        return shown_limit(made, self._clock())

    async def unlimit(self, scope: str, name: str) -> bool:
        return await self._write(lambda db, _: unlimit(db, scope, name), news=True)

    async def pause_key(
        self, key: str, until: Instant | None = None, *, delay_seconds: float | None = None
    ) -> Limit:
        def paused(db: Database, now: Instant) -> Limit:
            at = now + micros(delay_seconds or 0) if until is None else until
            return shown_limit(pause_key(db, now, key, at), now)

        return await self._write(paused)

    async def resume_key(self, key: str) -> bool:
        return await self._write(lambda db, now: resume_key(db, now, key), news=True)

    async def held_back(self, run: UUID, tenant: Tenant, runtime: str = RUNTIME) -> tuple[Hold, ...]:
        return self._read(held_back, self._clock(), run, tenant_name(tenant), runtime)
