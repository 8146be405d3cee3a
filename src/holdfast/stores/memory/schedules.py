"""Schedules: stored, listed and fired. Each time of a schedule starts one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import HoldfastError, UnknownSchedule
from holdfast.lifecycle import FINAL
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
from holdfast.stores.schedule_rows import LOST, ScheduleRow, shown
from holdfast.stores.schedules import same_time

from .rows import State
from .writes import start


class StoredRuns:
    """The runs of the store, as schedules need them."""

    def __init__(self, state: State, now: Instant = 0) -> None:
        self._state, self._now = state, now

    def prefetch(self, runs: Sequence[UUID]) -> None:
        """Do nothing: the runs are here."""

    def runs_on(self, run: UUID, *, hidden: bool = False) -> bool:
        first = self._state.runs.get(run)
        found = None if first is None else self._state.present_of(first)
        return found is not None and found.status not in FINAL and (hidden or found.deleted_at is None)

    def taken(self, firing: Firing) -> tuple[UUID, ...]:
        known = self._state.runs
        there = [(one.run, known[one.run.id]) for one in firing.fires if one.run.id in known]
        return tuple([run.id for run, row in there if not same_time(run, row.tenant, row.labels)])

    def start(self, run: NewRun) -> Started | HoldfastError:
        (answer,) = start(self._state, [run], self._now)
        return answer


def listed(
    state: State, tenant: str | None, name: str | None, limit: int, after: tuple[str, str] | None
) -> list[Schedule]:
    found = [
        row for key, row in sorted(state.schedules.items(), key=lambda one: one[0])
        if tenant in {None, key[0]} and name in {None, key[1]} and (after is None or key > after)
    ]  # fmt: skip
    return page(map(shown, found), schedule_bytes, limit)


def put(state: State, new: NewSchedule, now: Instant) -> ScheduleRow:
    row = state.schedules.get((new.tenant, new.name))
    if row is None:
        row = state.schedules[new.tenant, new.name] = ScheduleRow(new=new, created_at=now, updated_at=now)
    else:
        rows.given(row, new, now)
    return row


def due(state: State, limit: int, after: UUID | None, now: Instant) -> list[Schedule]:
    runs, known = StoredRuns(state), sorted(state.schedules.values(), key=lambda row: row.new.id)
    found = [row for row in known if (at := rows.due_at(row, runs)) is not None and at <= now]
    return page((shown(row) for row in found if after is None or row.new.id > after), schedule_bytes, limit)


def due_at(state: State, besides: Sequence[tuple[UUID, int]]) -> Iterable[Instant]:
    """Return the times at which a keeper may find a schedule to fire."""
    runs = StoredRuns(state)
    known = [row for row in state.schedules.values() if (row.new.id, row.rev) not in besides]
    return [at for row in known if (at := rows.due_at(row, runs)) is not None]


def _find(state: State, name: str, tenant: str) -> ScheduleRow:
    row = state.schedules.get((tenant, name))
    if row is None:
        raise UnknownSchedule(name)
    return row


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
            row = _find(self._state, name, tenant)
            rows.pause(row, by, self._clock())
            return shown(row)

    async def resume_schedule(self, name: str, rev: int, next_at: Instant | None, tenant: str) -> Schedule:
        with self._lock:
            row = _find(self._state, name, tenant)
            rows.resume(row, rev, next_at, self._clock())
            self._hint()
            return shown(row)

    async def due_schedules(self, limit: int = 100, after: UUID | None = None) -> list[Schedule]:
        with self._lock:
            return due(self._state, limit, after, self._clock())

    async def fire_schedule(self, firing: Firing) -> Fired:
        with self._lock:
            now, row = self._clock(), self._state.schedules.get((firing.tenant, firing.name))
            fired = rows.fire(row, firing, StoredRuns(self._state, now), now)
            if fired is not LOST:
                self._hint()
            return fired
