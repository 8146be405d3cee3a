"""The chores of a keeper: expire, time_out, lapse, a slice each. None of them needs user code."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.backoff import crash_delay
from holdfast.lifecycle import OPEN, Status
from holdfast.records import Error, Instant
from holdfast.stores.durations import micros

from .rows import RunRow, State, check
from .settling import lapses, open_waits, settle


def expire(state: State, now: Instant, limit: int) -> list[RunRow]:
    past = [row for row in state.runs.values() if row.lease_until is not None and row.lease_until < now]
    for row in past[:limit]:
        _expire_one(state, row, now)
    return past[:limit]


def _expire_one(state: State, row: RunRow, now: Instant) -> None:
    worker = row.leased_by
    row.crashes, row.fence = row.crashes + 1, row.fence + 1
    row.let_go()
    state.note(row, "lease_expired", now, worker=worker, crashes=row.crashes)
    message = f"the lease of {worker} ran out"
    _blame(row, "lease_expired", message)
    if row.crashes >= row.max_crashes:
        _fail(state, row, "lease_expired", message, now)
    else:
        row.run_at = now + micros(crash_delay(row.crashes))
        by, row.status = row.pause_asked_by, Status.PENDING
        if by is not None:
            row.pause(Status.PENDING)
            state.note(row, "paused", now, by=by)
    check(row)


def time_out(state: State, now: Instant, limit: int) -> list[RunRow]:
    timed = [row for row in state.runs.values() if row.status in OPEN and row.timeout_at is not None]
    late = [row for row in timed if row.timeout_at is not None and row.timeout_at <= now]
    for row in late[:limit]:
        row.fence += 1
        state.note(row, "timed_out", now)
        message = f"the run did not end within {row.timeout_seconds:g} s"
        _blame(row, "timeout", message)
        _fail(state, row, "timeout", message, now)
        check(row)
    return late[:limit]


def _blame(row: RunRow, kind: str, message: str) -> None:
    row.error = msgspec.json.encode(Error(kind=kind, message=message)).decode()
    row.last_error = f"{kind}: {message}"


def _fail(state: State, row: RunRow, kind: str, message: str, now: Instant) -> None:
    state.end(row, Status.FAILED, now)
    state.note(row, "failed", now, kind=kind, message=message)


def lapse(state: State, now: Instant, limit: int, *, wait_timeouts: bool) -> list[UUID]:
    """The runs whose waits were settled, first due first."""
    due = [
        (wait.due_at, row.id, wait.seq, row, wait)
        for row in state.runs.values()
        for wait in open_waits(row)
        if lapses(row, wait, wait_timeouts=wait_timeouts) and wait.due_at is not None and wait.due_at <= now
    ]
    first = sorted(due, key=lambda entry: entry[:3])[:limit]
    for *_, row, wait in first:
        settle(state, row, wait, now)
    return [row.id for *_, row, _ in first]
