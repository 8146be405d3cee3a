"""Schedules: stored, listed and fired. Each time of a schedule starts one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.errors import Conflict, UnknownSchedule
from holdfast.records import (
    CatchUp,
    Fire,
    Fired,
    FiredBy,
    Firing,
    Instant,
    NewSchedule,
    Overlap,
    Schedule,
    Started,
    Tenant,
    instant,
    moment,
    tenant_name,
)
from holdfast.records.sizes import schedule_bytes
from holdfast.stores.schedules import FORGET_MAX, keeps_runs, place, same_rhythm, same_time

from .connection.database import Database, Row, text
from .connection.writer import Work
from .sql import statements
from .writes import start

T = TypeVar("T")

_SQL = statements("schedules")
_SQL = {
    name: sql.replace("$columns", _SQL["columns"])
    .replace("$is_open", _SQL["is_open"])
    .replace("$left_out", _SQL["left_out"])
    for name, sql in _SQL.items()
}

LOST = Fired(answer="lost")


def listed(
    db: Database, tenant: str | None, name: str | None, limit: int, after: tuple[str, str] | None
) -> list[Schedule]:
    after_tenant, after_name = (None, None) if after is None else after
    where = {"tenant": tenant, "name": name, "after_tenant": after_tenant, "after_name": after_name}
    rows = db.each(_SQL["list"], {**where, "limit": max(0, limit)})
    return page(map(_shown, rows), schedule_bytes, limit)


def put(db: Database, now: Instant, new: NewSchedule) -> Schedule:
    there = db.one(_SQL["one"], (new.tenant, new.name))
    if there is None:
        db.run(_SQL["insert"], _values(new, now))
        return _one(db, new.tenant, new.name)
    shown = _shown(there)
    old = _as_given(shown)
    new = msgspec.structs.replace(new, id=old.id)
    if same_rhythm(old, new):
        new = msgspec.structs.replace(new, anchor_at=old.anchor_at, next_at=old.next_at)
    if new == old:
        return shown
    db.run(_SQL["update"], _values(new, now))
    if keeps_runs(new.overlap) and not keeps_runs(old.overlap) and shown.last_run is not None:
        db.run(_SQL["add_run"], (str(old.id), str(shown.last_run)))
    return _one(db, new.tenant, new.name)


def _values(new: NewSchedule, now: Instant) -> dict[str, Any]:
    return {**msgspec.structs.asdict(new), "id": str(new.id), "now": now}


def remove(db: Database, name: str, tenant: str) -> bool:
    gone = db.one(_SQL["remove"], (tenant, name))
    if gone is not None:
        db.run(_SQL["remove_runs"], gone)
    return gone is not None


def pause(db: Database, now: Instant, name: str, tenant: str, by: str) -> Schedule:
    db.run(_SQL["pause"], (by, now, tenant, name))
    return _one(db, tenant, name)


def resume(db: Database, now: Instant, name: str, tenant: str, seen: tuple[int, Instant | None]) -> Schedule:
    """Resume a schedule. `seen`: its revision, and the next time that was computed for it."""
    rev, next_at = seen
    db.run(_SQL["resume"], (next_at, now, tenant, name, rev))
    shown = _one(db, tenant, name)
    if shown.paused:
        raise Conflict(f"schedule {name!r} was changed at the same moment: try again")
    return shown


def due(db: Database, now: Instant, limit: int, after: UUID | None) -> list[Schedule]:
    cursor = None if after is None else str(after)
    rows = db.each(_SQL["due"], {"now": now, "after": cursor, "limit": max(0, limit)})
    return page(map(_shown, rows), schedule_bytes, limit)


def next_due(db: Database, besides: Sequence[tuple[UUID, int]] = ()) -> Instant | None:
    """Return when a keeper may find a schedule to fire."""
    left_out = text([(str(schedule), rev) for schedule, rev in besides])
    row = db.one(_SQL["next_besides"], (left_out,)) if besides else db.one(_SQL["next"])
    return None if row is None else row[0]


def fire(db: Database, now: Instant, firing: Firing) -> Fired:
    schedule = str(firing.schedule)
    seen = db.one(_SQL["seen"], (firing.tenant, firing.name, schedule, firing.rev, firing.by))
    if seen is None:
        return LOST
    if taken := _taken(db, firing):
        return Fired(answer="taken", taken=taken)
    overlap, waiting = Overlap(seen[0]), _times(seen[1])
    starter = _Starter(db, now, schedule, overlap)
    db.run(_SQL["forget_ended"], {"id": schedule, "limit": FORGET_MAX})
    if firing.by is FiredBy.RHYTHM:
        fired, waiting = starter.in_rhythm(firing, waiting)
    else:
        (one,) = firing.fires
        if firing.by is FiredBy.QUEUE:
            if waiting[:1] != [one.at] or starter.is_open():
                return LOST
            waiting = waiting[1:]
        fired = Fired(answer="applied", started=starter.start(one))
    db.run(_SQL["moved"], (text(waiting) if waiting else None, now, schedule))
    return fired


def _taken(db: Database, firing: Firing) -> tuple[UUID, ...]:
    """Return the ids of its runs that other runs already use. A run that is fired by hand has a fresh id."""
    if firing.by is FiredBy.HAND:
        return ()
    there = {UUID(row[0]): row[1:] for row in db.all(_SQL["there"], (text(_ids(firing)),))}
    runs = [one.run for one in firing.fires]
    return tuple([run.id for run in runs if run.id in there and not same_time(run, *there[run.id])])


def _ids(firing: Firing) -> list[str]:
    return [str(one.run.id) for one in firing.fires]


class _Starter:
    """Starts runs of one schedule, inside one transaction."""

    def __init__(self, db: Database, now: Instant, schedule: str, overlap: Overlap) -> None:
        self._db, self._now, self._id, self._overlap = db, now, schedule, overlap

    def in_rhythm(self, firing: Firing, waiting: list[Instant]) -> tuple[Fired, list[Instant]]:
        self._db.run(_SQL["move_on"], (firing.next_at, self._id))
        if firing.missed_at is not None:
            self._db.run(_SQL["missed"], (firing.missed_at, self._id))
        started: list[UUID] = []
        skipped = queued = 0
        for one in firing.fires:
            match place(self._overlap, self.is_open, waiting=len(waiting)):
                case "start":
                    started += self.start(one)
                case "skip":
                    skipped += 1
                    self._db.run(_SQL["skipped"], (one.at, self._id))
                case "wait":
                    queued += 1
                    waiting = [*waiting, one.at]
        return Fired(answer="applied", started=tuple(started), skipped=skipped, queued=queued), waiting

    def start(self, one: Fire) -> tuple[UUID, ...]:
        """Start the run. Return its id, or nothing if it was already started for this time."""
        (answer,) = start(self._db, self._now, [one.run])
        if keeps_runs(self._overlap):
            self._db.run(_SQL["add_run"], (self._id, str(one.run.id)))
        if not isinstance(answer, Started):
            return ()
        self._db.run(_SQL["started"], (one.at, str(answer.id), self._id))
        return (answer.id,)

    def is_open(self) -> bool:
        row = self._db.one(_SQL["open"], (self._id,))
        return row is not None and bool(row[0])


def _one(db: Database, tenant: str, name: str) -> Schedule:
    row = db.one(_SQL["one"], (tenant, name))
    if row is None:
        raise UnknownSchedule(name)
    return _shown(row)


def _times(stored: str | None) -> list[Instant]:
    return [] if stored is None else msgspec.json.decode(stored, type=list[int])


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)


def _shown(row: Row) -> Schedule:
    return Schedule(
        id=UUID(row[0]), name=row[1], tenant=row[2], type=row[3], params_json=row[4],
        cron=row[5], zone=row[6], every_us=row[7], anchor_at=moment(row[8]), jitter_us=row[9],
        overlap=Overlap(row[10]), catch_up=CatchUp(row[11]), priority=row[12], max_attempts=row[13],
        timeout_seconds=row[14], ttl_seconds=row[15], budget_units=row[16], limit_key=row[17],
        labels_json=row[18], paused=bool(row[19]), paused_by=row[20], next_at=_moment(row[21]),
        waiting=tuple(map(moment, _times(row[22]))), fired=row[23], skipped=row[24], last_at=_moment(row[25]),
        last_run=None if row[26] is None else UUID(row[26]), last_skipped_at=_moment(row[27]),
        last_missed_at=_moment(row[28]), rev=row[29], created_at=moment(row[30]), updated_at=moment(row[31]),
    )  # fmt: skip


def _as_given(shown: Schedule) -> NewSchedule:
    """Return the schedule as it was last given."""
    same = {name: getattr(shown, name) for name in _SAME}
    return NewSchedule(
        **same,
        params=shown.params_json,
        labels=shown.labels_json,
        budget=shown.budget_units,
        anchor_at=instant(shown.anchor_at),
        next_at=None if shown.next_at is None else instant(shown.next_at),
    )


_SAME = set(NewSchedule.__struct_fields__) & set(Schedule.__struct_fields__) - {
    "anchor_at",
    "next_at",
}  # fields with the same name and form in both


class ScheduleVerbs:
    """The verbs of schedules, as a mixin of the store."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Schedule]:
        return self._read(listed, tenant_name(tenant), name, limit, after)

    async def schedule(self, new: NewSchedule) -> Schedule:
        return await self._write(lambda db, now: put(db, now, new), news=True)

    async def unschedule(self, name: str, tenant: str) -> bool:
        return await self._write(lambda db, _: remove(db, name, tenant))

    async def pause_schedule(self, name: str, tenant: str, by: str = "") -> Schedule:
        return await self._write(lambda db, now: pause(db, now, name, tenant, by))

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        return await self._write(lambda db, now: resume(db, now, name, tenant, (rev, next_at)), news=True)

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> list[Schedule]:
        return self._read(due, self._clock(), limit, after)

    async def fire_schedule(self, firing: Firing) -> Fired:
        return await self._write(lambda db, now: fire(db, now, firing), news=True)
