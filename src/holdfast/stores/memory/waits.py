"""Events: emit, deliver. What comes is recorded first, then handed to those who wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepStatus
from holdfast.machine.rows import StepRow
from holdfast.machine.waking import settle
from holdfast.records import Instant, NewEvent

from .rows import EventRow, State
from .view import MemoryView, record


def take_in(state: State, event: NewEvent, now: Instant) -> tuple[EventRow, bool]:
    """Record it, unless it is there; and whether it was."""
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
        raise IllegalMove(present.id, "emit", present.status)


def hand_over(state: State, event: EventRow, now: Instant, limit: int) -> list[UUID]:
    """Let the next waits look for the event; the runs that an event has woken.

    Those look that are open when the first of them does: one opened later looks by itself. How far the event
    has come stands in its row, so that a later call goes on there.
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
            continue  # somebody was faster
        # The wait takes its oldest event, which may be another one that is not delivered yet.
        if settle(view, row, wait):
            woken.append(row.id)
    view.save()
    for _ in page:
        event.left.popleft()
    if not event.left:
        event.delivered, event.left = True, None
    return woken


def undelivered(state: State) -> list[EventRow]:
    """The events that are not delivered, oldest first."""
    return [event for event in state.events if not event.delivered]


def still_pending(state: State, runs: Sequence[UUID]) -> int:
    """How many of these runs nobody has taken up yet."""
    rows = (state.runs.get(run) for run in runs)
    return sum(row is not None and row.status is Status.PENDING for row in rows)


def _waiters(state: State, event: EventRow) -> list[tuple[UUID, str]]:
    """The open waits on the event's topic, by run and seq; those of its run, if it is addressed."""
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
