"""tick: what a keeper does, in the order of the contract. None of it needs user code."""

from __future__ import annotations

import msgspec

from holdfast.backoff import crash_delay
from holdfast.lifecycle import OPEN, Status
from holdfast.records import Error, Instant, Ticked
from holdfast.stores.durations import micros

from .rows import RunRow, State, check
from .settling import lapses, open_waits, settle
from .waits import deliver


def tick(state: State, now: Instant, *, wait_timeouts: bool) -> Ticked:
    expired, late = _expire(state, now), _time_out(state, now)
    return Ticked(
        expired=len(expired),
        timed_out=len(late),
        lapsed=_lapse(state, now, wait_timeouts=wait_timeouts),
        delivered=deliver(state, now),
        failed=tuple(sorted({row.id for row in (*expired, *late) if row.status is Status.FAILED})),
    )


def _expire(state: State, now: Instant) -> list[RunRow]:
    past = [row for row in state.runs.values() if row.lease_until is not None and row.lease_until < now]
    for row in past:
        _expire_one(state, row, now)
    return past


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


def _time_out(state: State, now: Instant) -> list[RunRow]:
    timed = [row for row in state.runs.values() if row.status in OPEN and row.timeout_at is not None]
    late = [row for row in timed if row.timeout_at is not None and row.timeout_at <= now]
    for row in late:
        row.fence += 1
        state.note(row, "timed_out", now)
        message = f"the run did not end within {row.timeout_seconds:g} s"
        _blame(row, "timeout", message)
        _fail(state, row, "timeout", message, now)
        check(row)
    return late


def _blame(row: RunRow, kind: str, message: str) -> None:
    row.error = msgspec.json.encode(Error(kind=kind, message=message)).decode()
    row.last_error = f"{kind}: {message}"


def _fail(state: State, row: RunRow, kind: str, message: str, now: Instant) -> None:
    state.end(row, Status.FAILED, now)
    state.note(row, "failed", now, kind=kind, message=message)


def _lapse(state: State, now: Instant, *, wait_timeouts: bool) -> int:
    due = [
        (wait.due_at, row.id, wait.seq, row, wait)
        for row in state.runs.values()
        for wait in open_waits(row)
        if lapses(row, wait, wait_timeouts=wait_timeouts) and wait.due_at is not None and wait.due_at <= now
    ]
    for *_, row, wait in sorted(due, key=lambda entry: entry[:3]):
        settle(state, row, wait, now)
    return len(due)
