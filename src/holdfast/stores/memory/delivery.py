"""Delivery: an event is recorded first, then handed to the runs that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepStatus
from holdfast.machine.relocating import send_there
from holdfast.machine.rows import StepRow
from holdfast.machine.waking import settle
from holdfast.records import Instant, NewEvent

from .rows import EventRow, State
from .view import MemoryView, record


def take_in(state: State, event: NewEvent, now: Instant) -> tuple[EventRow, bool]:
    """Record an event unless it is known. Return it, and True when it was known."""
    known = state.event_ids.get((event.tenant, event.id))
    if known is None and event.run is not None:
        _addressable(state, event)
    return record(state, event, now), known is not None


def _addressable(state: State, event: NewEvent) -> None:
    assert event.run is not None
    row = state.runs.get(event.run)
    if row is None or row.head.deleted_at is not None or row.tenant != event.tenant:
        raise UnknownRun(event.run)
    present = state.present_of(row)
    if present.status in FINAL:
        raise IllegalMove(present.id, "emit", present.status, send_there(present.last_error))


def hand_over(state: State, event: EventRow, now: Instant, limit: int) -> list[UUID]:
    """Hand an event to its next waits. Return the runs that were woken.

    The waits are those that are open at the first call; a wait opened later looks for itself. The row of the
    event holds the waits that are left, so that a later call can continue.
    """
    if event.delivered:
        return []
    if event.left is None:
        event.left = deque(_waiters(state, event))
    woken, view = list[UUID](), MemoryView(state, now)
    page = list(islice(event.left, limit))
    for run, key in page:
        row = view.run(run)
        wait = None if row is None else row.steps.get(key)
        if row is None or wait is None or not _listens(wait, event):
            continue  # it was settled meanwhile
        # The wait takes its oldest event, which may be another undelivered event.
        if settle(view, row, wait):
            woken.append(row.id)
    view.save()
    for _ in page:
        event.left.popleft()
    if not event.left:
        event.delivered, event.left = True, None
    return woken


def undelivered(state: State) -> list[EventRow]:
    """Return the undelivered events, oldest first."""
    return [event for event in state.events if not event.delivered]


def still_pending(state: State, runs: Sequence[UUID]) -> int:
    """Return how many of these runs no worker has claimed yet."""
    rows = (state.runs.get(run) for run in runs)
    return sum(row is not None and row.status is Status.PENDING for row in rows)


def _waiters(state: State, event: EventRow) -> list[tuple[UUID, str]]:
    """Return the open waits on the topic, by run and seq; for an addressed event, only those of its run."""
    listeners = state.listeners.get((event.tenant, event.topic), set())
    found = list[tuple[UUID, int, str]]()
    for run, key in tuple(listeners):
        row = state.runs.get(run)
        wait = None if row is None else row.steps.get(key)
        if wait is None or not _listens(wait, event):
            listeners.discard((run, key))
        elif event.run is None or (row is not None and event.run == row.head.id):
            found.append((run, wait.seq, key))
    return [(run, key) for run, _, key in sorted(found)]


def _listens(wait: StepRow, event: EventRow) -> bool:
    return wait.status is StepStatus.WAITING and wait.topic == event.topic
