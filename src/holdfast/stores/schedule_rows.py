"""Schedules as rows: how a row is given, paused, resumed and fired. Memory and Redis keep such rows.

The functions change the row that they are given. The caller stores it when it has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from holdfast.errors import Conflict, HoldfastError
from holdfast.records import (
    Fire,
    Fired,
    FiredBy,
    Firing,
    Instant,
    NewRun,
    NewSchedule,
    Schedule,
    Started,
    moment,
)

from .schedules import FORGET_MAX, keeps_runs, place, same_rhythm

LOST = Fired(answer="lost")


class ScheduleRow(msgspec.Struct, kw_only=True):
    """A schedule as it was last given, and its progress. `open`: its runs, except those that were seen to
    have ended; empty if its runs may overlap."""

    new: NewSchedule
    created_at: Instant
    updated_at: Instant
    rev: int = 1
    paused: bool = False
    paused_by: str | None = None
    waiting: tuple[Instant, ...] = ()
    open: tuple[UUID, ...] = ()
    fired: int = 0
    skipped: int = 0
    last_at: Instant | None = None
    last_run: UUID | None = None
    last_skipped_at: Instant | None = None
    last_missed_at: Instant | None = None


class Runs(Protocol):
    """The runs of a store, as schedules need them."""

    def prefetch(self, runs: Sequence[UUID]) -> None:
        """Read these runs together, because they will be asked for."""

    def runs_on(self, run: UUID, *, hidden: bool = False) -> bool:
        """Return True when the chain that the run has begun is open. hidden: also if it is deleted."""

    def taken(self, firing: Firing) -> tuple[UUID, ...]:
        """Return the ids of the firing's runs that other runs already use."""

    def start(self, run: NewRun) -> Started | HoldfastError:
        """Start a run."""


def given(row: ScheduleRow, new: NewSchedule, now: Instant) -> bool:
    """Give a known schedule anew. Return True when that has changed it."""
    old = row.new
    new = msgspec.structs.replace(new, id=old.id)
    if same_rhythm(old, new):
        new = msgspec.structs.replace(new, anchor_at=old.anchor_at, next_at=old.next_at)
    if new == old:
        return False
    if keeps_runs(new.overlap) and not keeps_runs(old.overlap) and row.last_run is not None:
        row.open = tuple(dict.fromkeys((*row.open, row.last_run)))
    row.new = new
    _changed(row, now)
    return True


def pause(row: ScheduleRow, by: str, now: Instant) -> bool:
    """Pause a schedule. Return False when it was paused before."""
    if row.paused:
        return False
    row.paused, row.paused_by = True, by
    _changed(row, now)
    return True


def resume(row: ScheduleRow, rev: int, next_at: Instant | None, now: Instant) -> bool:
    """Resume a schedule. Return False when it was not paused."""
    if not row.paused:
        return False
    if row.rev != rev:
        raise Conflict(f"schedule {row.new.name!r} was changed at the same moment: try again")
    row.paused, row.paused_by = False, None
    row.new = msgspec.structs.replace(row.new, next_at=next_at)
    _changed(row, now)
    return True


def fire(row: ScheduleRow | None, firing: Firing, runs: Runs, now: Instant) -> Fired:
    """Fire a schedule: start, skip or queue the runs of its times. The answer says when nothing is done."""
    if row is None or (row.new.id, row.rev) != (firing.schedule, firing.rev):
        return LOST
    if row.paused and firing.by is not FiredBy.HAND:
        return LOST
    # A run that is fired by hand has a fresh id.
    if firing.by is not FiredBy.HAND and (taken := runs.taken(firing)):
        return Fired(answer="taken", taken=taken)
    known = sorted(row.open)
    runs.prefetch(known[:FORGET_MAX])
    kept = [run for run in known[:FORGET_MAX] if runs.runs_on(run, hidden=True)]
    row.open = (*kept, *known[FORGET_MAX:])
    fired = _fired(row, firing, runs)
    if fired is not LOST:
        _changed(row, now)
    return fired


def _fired(row: ScheduleRow, firing: Firing, runs: Runs) -> Fired:
    if firing.by is FiredBy.RHYTHM:
        return _in_rhythm(row, firing, runs)
    (one,) = firing.fires
    if firing.by is FiredBy.QUEUE:
        if row.waiting[:1] != (one.at,) or _is_open(row, runs):
            return LOST
        row.waiting = row.waiting[1:]
    return Fired(answer="applied", started=_start(row, one, runs))


def _in_rhythm(row: ScheduleRow, firing: Firing, runs: Runs) -> Fired:
    row.new = msgspec.structs.replace(row.new, next_at=firing.next_at)
    if firing.missed_at is not None:
        row.last_missed_at = firing.missed_at
    started: list[UUID] = []
    skipped = queued = 0
    for one in firing.fires:
        match place(row.new.overlap, lambda: _is_open(row, runs), waiting=len(row.waiting)):
            case "start":
                started += _start(row, one, runs)
            case "skip":
                skipped += 1
                row.skipped, row.last_skipped_at = row.skipped + 1, one.at
            case "wait":
                queued += 1
                row.waiting = (*row.waiting, one.at)
    return Fired(answer="applied", started=tuple(started), skipped=skipped, queued=queued)


def _start(row: ScheduleRow, one: Fire, runs: Runs) -> tuple[UUID, ...]:
    """Start the run. Return its id, or nothing if it was already started for this time."""
    answer = runs.start(one.run)
    if keeps_runs(row.new.overlap):
        row.open = (*row.open, one.run.id)
    if not isinstance(answer, Started):
        return ()
    row.fired, row.last_at, row.last_run = row.fired + 1, one.at, answer.id
    return (answer.id,)


def _is_open(row: ScheduleRow, runs: Runs) -> bool:
    return any(map(runs.runs_on, row.open))


def due_at(row: ScheduleRow, runs: Runs) -> Instant | None:
    """Return when a keeper may fire the schedule; None: not by itself."""
    if row.paused:
        return None
    # A queued time that can start its run is due at once, whatever the clock says.
    return 0 if row.waiting and not _is_open(row, runs) else row.new.next_at


def _changed(row: ScheduleRow, now: Instant) -> None:
    row.rev, row.updated_at = row.rev + 1, now


def shown(row: ScheduleRow) -> Schedule:
    """Return a schedule as callers see it."""
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
