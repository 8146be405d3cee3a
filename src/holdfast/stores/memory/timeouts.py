"""expire, time_out and lapse: leases, runs and waits whose time is over, in slices."""

from __future__ import annotations

from uuid import UUID

from holdfast.lifecycle import OPEN
from holdfast.machine import chores
from holdfast.machine.settling import lapses
from holdfast.machine.waking import settle
from holdfast.records import Instant

from .rows import RunRow, State
from .view import MemoryView, open_waits


def expire(state: State, now: Instant, limit: int) -> list[RunRow]:
    past = [row for row in state.runs.values() if row.lease_until is not None and row.lease_until < now]
    view = MemoryView(state, now)
    for row in past[:limit]:
        chores.expire(view, row)
    view.save()
    return past[:limit]


def time_out(state: State, now: Instant, limit: int) -> list[RunRow]:
    timed = [row for row in state.runs.values() if row.status in OPEN and row.timeout_at is not None]
    late = [row for row in timed if row.timeout_at is not None and row.timeout_at <= now]
    view = MemoryView(state, now)
    for row in late[:limit]:
        chores.time_out(view, row)
    view.save()
    return late[:limit]


def lapse(state: State, now: Instant, limit: int, *, wait_timeouts: bool) -> list[UUID]:
    """Settle due waits. Return their runs, first due first."""
    due = [
        (wait.due_at, row.id, wait.seq, row, wait)
        for row in state.runs.values()
        for wait in open_waits(row)
        if lapses(row, wait, wait_timeouts=wait_timeouts) and wait.due_at is not None and wait.due_at <= now
    ]
    first = sorted(due, key=lambda entry: entry[:3])[:limit]
    view = MemoryView(state, now)
    for *_, row, wait in first:
        settle(view, row, wait)
    view.save()
    return [row.id for *_, row, _ in first]
