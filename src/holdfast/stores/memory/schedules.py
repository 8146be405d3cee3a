"""Schedules: stored, listed and fired. Each time of a schedule starts one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.errors import Conflict, UnknownSchedule
from holdfast.lifecycle import FINAL
from holdfast.records import (
    Fire,
    Fired,
    FiredBy,
    Firing,
    Instant,
    NewSchedule,
    Schedule,
    Started,
    Tenant,
    moment,
    tenant_name,
)
from holdfast.records.sizes import schedule_bytes
from holdfast.stores.schedules import FORGET_MAX, keeps_runs, place, same_rhythm, same_time

from .rows import ScheduleRow, State
from .writes import start

LOST = Fired(answer="lost")


def listed(
    state: State, tenant: str | None, name: str | None, limit: int, after: tuple[str, str] | None
) -> list[Schedule]:
    rows = [
        row for key, row in sorted(state.schedules.items())
        if tenant in {None, key[0]} and name in {None, key[1]} and (after is None or key > after)
    ]  # fmt: skip
    return page(map(shown, rows), schedule_bytes, limit)


def put(state: State, new: NewSchedule, now: Instant) -> ScheduleRow:
    row = state.schedules.get((new.tenant, new.name))
    if row is None:
        made = state.schedules[new.tenant, new.name] = ScheduleRow(new=new, created_at=now, updated_at=now)
        return made
    old = row.new
    new = msgspec.structs.replace(new, id=old.id)
    if same_rhythm(old, new):
        new = msgspec.structs.replace(new, anchor_at=old.anchor_at, next_at=old.next_at)
    if new != old:
        if keeps_runs(new.overlap) and not keeps_runs(old.overlap) and row.last_run is not None:
            row.open = tuple(dict.fromkeys((*row.open, row.last_run)))
        row.new = new
        _changed(row, now)
    return row


def pause(state: State, name: str, tenant: str, by: str, now: Instant) -> ScheduleRow:
    row = _find(state, name, tenant)
    if not row.paused:
        row.paused, row.paused_by = True, by
        _changed(row, now)
    return row


def resume(
    state: State, name: str, tenant: str, rev: int, next_at: Instant | None, now: Instant
) -> ScheduleRow:
    row = _find(state, name, tenant)
    if not row.paused:
        return row
    if row.rev != rev:
        raise Conflict(f"schedule {name!r} was changed at the same moment: try again")
    row.paused, row.paused_by = False, None
    row.new = msgspec.structs.replace(row.new, next_at=next_at)
    _changed(row, now)
    return row


def due(state: State, limit: int, after: UUID | None, now: Instant) -> list[Schedule]:
    rows = sorted(state.schedules.values(), key=lambda row: row.new.id)
    found = [row for row in rows if (at := _due_at(state, row)) is not None and at <= now]
    return page((shown(row) for row in found if after is None or row.new.id > after), schedule_bytes, limit)


def due_at(state: State, besides: Sequence[tuple[UUID, int]]) -> Iterable[Instant]:
    """Return the times at which a keeper may find a schedule to fire."""
    rows = [row for row in state.schedules.values() if (row.new.id, row.rev) not in besides]
    return [at for row in rows if (at := _due_at(state, row)) is not None]


def fire(state: State, firing: Firing, now: Instant) -> Fired:
    row = state.schedules.get((firing.tenant, firing.name))
    if row is None or (row.new.id, row.rev) != (firing.schedule, firing.rev):
        return LOST
    if row.paused and firing.by is not FiredBy.HAND:
        return LOST
    if taken := _taken(state, firing):
        return Fired(answer="taken", taken=taken)
    known = sorted(row.open)
    kept = [run for run in known[:FORGET_MAX] if _runs_on(state, run, hidden=True)]
    row.open = (*kept, *known[FORGET_MAX:])
    fired = _fired(state, row, firing, now)
    if fired is not LOST:
        _changed(row, now)
    return fired


def _taken(state: State, firing: Firing) -> tuple[UUID, ...]:
    """Return the ids of its runs that other runs already use. A run that is fired by hand has a fresh id."""
    if firing.by is FiredBy.HAND:
        return ()
    there = [(one.run, state.runs[one.run.id]) for one in firing.fires if one.run.id in state.runs]
    return tuple([run.id for run, row in there if not same_time(run, row.tenant, row.labels)])


def _fired(state: State, row: ScheduleRow, firing: Firing, now: Instant) -> Fired:
    if firing.by is FiredBy.RHYTHM:
        return _in_rhythm(state, row, firing, now)
    (one,) = firing.fires
    if firing.by is FiredBy.QUEUE:
        if row.waiting[:1] != (one.at,) or _is_open(state, row):
            return LOST
        row.waiting = row.waiting[1:]
    return Fired(answer="applied", started=_start(state, row, one, now))


def _in_rhythm(state: State, row: ScheduleRow, firing: Firing, now: Instant) -> Fired:
    row.new = msgspec.structs.replace(row.new, next_at=firing.next_at)
    if firing.missed_at is not None:
        row.last_missed_at = firing.missed_at
    started: list[UUID] = []
    skipped = queued = 0
    for one in firing.fires:
        match place(row.new.overlap, lambda: _is_open(state, row), waiting=len(row.waiting)):
            case "start":
                started += _start(state, row, one, now)
            case "skip":
                skipped += 1
                row.skipped, row.last_skipped_at = row.skipped + 1, one.at
            case "wait":
                queued += 1
                row.waiting = (*row.waiting, one.at)
    return Fired(answer="applied", started=tuple(started), skipped=skipped, queued=queued)


def _start(state: State, row: ScheduleRow, one: Fire, now: Instant) -> tuple[UUID, ...]:
    """Start the run. Return its id, or nothing if it was already started for this time."""
    (answer,) = start(state, [one.run], now)
    if keeps_runs(row.new.overlap):
        row.open = (*row.open, one.run.id)
    if not isinstance(answer, Started):
        return ()
    row.fired, row.last_at, row.last_run = row.fired + 1, one.at, answer.id
    return (answer.id,)


def _is_open(state: State, row: ScheduleRow) -> bool:
    return any(_runs_on(state, run) for run in row.open)


def _runs_on(state: State, run: UUID, *, hidden: bool = False) -> bool:
    """Return True when the chain that the run has begun is open."""
    first = state.runs.get(run)
    found = None if first is None else state.present_of(first)
    return found is not None and found.status not in FINAL and (hidden or found.deleted_at is None)


def _due_at(state: State, row: ScheduleRow) -> Instant | None:
    if row.paused:
        return None
    # A queued time that can start its run is due at once, whatever the clock says.
    return 0 if row.waiting and not _is_open(state, row) else row.new.next_at


def _find(state: State, name: str, tenant: str) -> ScheduleRow:
    row = state.schedules.get((tenant, name))
    if row is None:
        raise UnknownSchedule(name)
    return row


def _changed(row: ScheduleRow, now: Instant) -> None:
    row.rev, row.updated_at = row.rev + 1, now


def shown(row: ScheduleRow) -> Schedule:
    new = row.new
    return Schedule(
        id=new.id, name=new.name, tenant=new.tenant, type=new.type, params_json=new.params, cron=new.cron,
        zone=new.zone, every_us=new.every_us, anchor_at=moment(new.anchor_at), jitter_us=new.jitter_us,
        overlap=new.overlap, catch_up=new.catch_up, priority=new.priority, max_attempts=new.max_attempts,
        timeout_seconds=new.timeout_seconds, ttl_seconds=new.ttl_seconds, budget_units=new.budget,
        limit_key=new.limit_key, labels_json=new.labels, paused=row.paused, paused_by=row.paused_by,
        next_at=_moment(new.next_at), waiting=tuple(map(moment, row.waiting)), fired=row.fired,
        skipped=row.skipped, last_at=_moment(row.last_at), last_run=row.last_run,
        last_skipped_at=_moment(row.last_skipped_at), last_missed_at=_moment(row.last_missed_at),
        rev=row.rev, created_at=moment(row.created_at), updated_at=moment(row.updated_at),
    )  # fmt: skip


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)


class ScheduleVerbs:
    """The verbs of schedules, as a mixin of the store."""

    _state: State
    _lock: AbstractContextManager[object]
    _clock: Callable[[], Instant]
    _hint: Callable[[], None]

    async def schedules(
        self,
        tenant: Tenant,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] | None = None,
    ) -> list[Schedule]:
        with self._lock:
            return listed(self._state, tenant_name(tenant), name, limit, after)

    async def schedule(self, new: NewSchedule) -> Schedule:
        with self._lock:
            row = put(self._state, new, self._clock())
            self._hint()
            return shown(row)

    async def unschedule(self, name: str, tenant: str) -> bool:
        with self._lock:
            return self._state.schedules.pop((tenant, name), None) is not None

    async def pause_schedule(self, name: str, tenant: str, by: str = "") -> Schedule:
        with self._lock:
            return shown(pause(self._state, name, tenant, by, self._clock()))

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        with self._lock:
            row = resume(self._state, name, tenant, rev, next_at, self._clock())
            self._hint()
            return shown(row)

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> list[Schedule]:
        with self._lock:
            return due(self._state, limit, after, self._clock())

    async def fire_schedule(self, firing: Firing) -> Fired:
        with self._lock:
            fired = fire(self._state, firing, self._clock())
            if fired is not LOST:
                self._hint()
            return fired
