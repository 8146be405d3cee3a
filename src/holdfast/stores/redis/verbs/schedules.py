"""Schedules: stored, listed and fired. Each time of a schedule starts one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES, page
from holdfast.errors import HoldfastError, UnknownSchedule
from holdfast.lifecycle import FINAL
from holdfast.machine import starting
from holdfast.machine.durations import micros
from holdfast.records import (
    Fired,
    Firing,
    Instant,
    NewRun,
    NewSchedule,
    Schedule,
    Started,
    Tenant,
    tenant_name,
)
from holdfast.records.sizes import schedule_bytes
from holdfast.stores import schedule_rows as rows
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.names import Names, parted
from holdfast.stores.redis.snapshot import Command, Snapshot
from holdfast.stores.redis.view import RedisView
from holdfast.stores.schedule_rows import ScheduleRow, shown
from holdfast.stores.schedules import same_time

PAGE = 200  # schedules that are read at once
_ROW = msgspec.json.Decoder(ScheduleRow)


def _find(snapshot: Snapshot, tenant: str, name: str) -> ScheduleRow | None:
    text = snapshot.guarded("HGET", snapshot.names("schedules"), parted(tenant, name))
    return None if text is None else _ROW.decode(text)


def _place(tenant: str, name: str) -> str:
    """Return the member of the set of all schedules: it is in the order of tenants, then of names."""
    return f"{tenant}\0{name}"


def _known(snapshot: Snapshot, tenant: str, name: str) -> ScheduleRow:
    row = _find(snapshot, tenant, name)
    if row is None:
        raise UnknownSchedule(name)
    return row


def _save(snapshot: Snapshot, row: ScheduleRow) -> None:
    names, field = snapshot.names, parted(row.new.tenant, row.new.name)
    snapshot.do("HSET", names("schedules"), field, msgspec.json.encode(row).decode())
    snapshot.do("ZADD", names("schedules:names"), 0, _place(row.new.tenant, row.new.name))
    if row.paused or row.new.next_at is None:
        snapshot.do("ZREM", names("schedules:next"), field)
    else:
        snapshot.do("ZADD", names("schedules:next"), row.new.next_at, field)
    if row.waiting and not row.paused:
        snapshot.do("ZADD", names("schedules:waiting"), 0, field)
    else:
        snapshot.do("ZREM", names("schedules:waiting"), field)


class ScheduleVerbs(Core):
    """The verbs of schedules, as a mixin of the store."""

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Schedule]:
        whose = tenant_name(tenant)
        low = "-" if whose is None else f"[{_place(whose, '')}"
        high = "+" if whose is None else f"({whose}\x01"
        if name is not None and whose is not None:
            low = high = f"[{_place(whose, name)}"
        if after is not None and (whose is None or after >= (whose, "")):
            low = f"({_place(*after)}"
        found, size = list[Schedule](), 0
        while len(found) < limit and size <= BATCH_BYTES:
            (places,) = await self._connections.ask(
                [("ZRANGEBYLEX", self._names("schedules:names"), low, high, "LIMIT", 0, PAGE)]
            )
            if not places:
                break
            fields = [parted(*place.split("\0")) for place in places]
            (texts,) = await self._connections.ask([("HMGET", self._names("schedules"), *fields)])
            known = [_ROW.decode(text) for text in texts if text is not None]
            some = [shown(row) for row in known if name in {None, row.new.name}]
            found += some
            size += sum(map(schedule_bytes, some))
            low = f"({places[-1]}"
        return page(found, schedule_bytes, limit)

    async def schedule(self, new: NewSchedule) -> Schedule:
        def schedule(snapshot: Snapshot) -> Schedule:
            snapshot.is_news = True
            return shown(put(snapshot, new, snapshot.now))

        return await self._change(schedule)

    async def unschedule(self, name: str, tenant: str) -> bool:
        def unschedule(snapshot: Snapshot) -> bool:
            if _find(snapshot, tenant, name) is None:
                return False
            field = parted(tenant, name)
            snapshot.do("HDEL", snapshot.names("schedules"), field)
            snapshot.do("ZREM", snapshot.names("schedules:names"), _place(tenant, name))
            snapshot.do("ZREM", snapshot.names("schedules:next"), field)
            snapshot.do("ZREM", snapshot.names("schedules:waiting"), field)
            return True

        return await self._change(unschedule)

    async def pause_schedule(self, name: str, tenant: str, by: str = "") -> Schedule:
        def pause(snapshot: Snapshot) -> Schedule:
            row = _known(snapshot, tenant, name)
            if rows.pause(row, by, snapshot.now):
                _save(snapshot, row)
            return shown(row)

        return await self._change(pause)

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        def resume(snapshot: Snapshot) -> Schedule:
            row = _known(snapshot, tenant, name)
            if rows.resume(row, rev, next_at, snapshot.now):
                _save(snapshot, row)
                snapshot.is_news = True
            return shown(row)

        return await self._change(resume)

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> list[Schedule]:
        def due(snapshot: Snapshot) -> list[Schedule]:
            runs, now = ViewedRuns(snapshot), snapshot.now
            key = snapshot.names("schedules:next")
            timely = snapshot.read("ZRANGEBYSCORE", key, "-inf", now)
            waiting = snapshot.read("ZRANGE", snapshot.names("schedules:waiting"), 0, -1)
            known = sorted(_rows(snapshot, [*timely, *waiting]), key=lambda row: row.new.id)
            found = [row for row in known if (at := rows.due_at(row, runs)) is not None and at <= now]
            later = (shown(row) for row in found if after is None or row.new.id > after)
            return page(later, schedule_bytes, limit)

        return await self._read(due)

    async def fire_schedule(self, firing: Firing) -> Fired:
        def fire_it(snapshot: Snapshot) -> Fired:
            return fire(snapshot, firing)

        return await self._change(fire_it)


def _rows(snapshot: Snapshot, fields: Iterable[str]) -> list[ScheduleRow]:
    key = snapshot.names("schedules")
    texts = snapshot.all([("HGET", key, field) for field in dict.fromkeys(fields)])
    return [_ROW.decode(text) for text in texts if text is not None]


def commands(names: Names, besides: Sequence[tuple[UUID, int]]) -> list[Command]:
    """Return the commands that find the schedules which may be due."""
    return [
        ("ZRANGE", names("schedules:next"), 0, len(besides)), ("ZRANGE", names("schedules:waiting"), 0, -1),
    ]  # fmt: skip


def due_at(snapshot: Snapshot, besides: Sequence[tuple[UUID, int]]) -> list[Instant]:
    """Return the times at which a keeper may find a schedule to fire: the first of them is enough."""
    names, runs = snapshot.names, ViewedRuns(snapshot)
    first, waiting = snapshot.all(commands(names, besides))
    known = [row for row in _rows(snapshot, [*first, *waiting]) if (row.new.id, row.rev) not in besides]
    return [at for row in known if (at := rows.due_at(row, runs)) is not None]


def put(snapshot: Snapshot, new: NewSchedule, now: Instant) -> ScheduleRow:
    """Store a schedule, or change it."""
    row = _find(snapshot, new.tenant, new.name)
    is_changed = row is None
    if row is None:
        row = ScheduleRow(new=new, created_at=now, updated_at=now)
    else:
        is_changed = rows.given(row, new, now)
    if is_changed:
        _save(snapshot, row)
    return row


def fire(snapshot: Snapshot, firing: Firing) -> Fired:
    """Fire a schedule, and store what that has changed."""
    row = _find(snapshot, firing.tenant, firing.name)
    for one in firing.fires:
        for seconds in (one.run.delay_seconds, one.run.timeout_seconds, one.run.ttl_seconds):
            micros(seconds or 0.0)
    runs = ViewedRuns(snapshot)
    fired = rows.fire(row, firing, runs, snapshot.now)
    if row is not None and fired.answer == "applied":
        runs.view.save()
        _save(snapshot, row)
        snapshot.is_news = True
    else:
        snapshot.begin()
    return fired


class ViewedRuns:
    """The runs of the store, as schedules need them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.view = RedisView(snapshot)

    def prefetch(self, runs: Sequence[UUID]) -> None:
        self.view.prefetch(runs)

    def runs_on(self, run: UUID, *, hidden: bool = False) -> bool:
        row = self.view.run(run)
        first = None if row is None else self.view.run(row.chain_id)
        if first is None:
            return False
        found = first if first.present is None else self.view.run(first.present)
        return found is not None and found.status not in FINAL and (hidden or found.deleted_at is None)

    def taken(self, firing: Firing) -> tuple[UUID, ...]:
        names = self.view.names
        found = self.view.snapshot.all(
            [("HMGET", names.run(one.run.id), "status", "tenant", "labels") for one in firing.fires]
        )
        return tuple(
            one.run.id
            for one, (status, tenant, labels) in zip(firing.fires, found, strict=True)
            if status is not None and not same_time(one.run, tenant, labels)
        )

    def start(self, run: NewRun) -> Started | HoldfastError:
        (answer,) = starting.start(self.view, [run])
        return answer
