"""Events: emit, deliver. What comes is recorded first, then handed to those who wait."""

from __future__ import annotations

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL
from holdfast.records import Emitted, Instant, NewEvent
from holdfast.store import EVENT_KEEP_SECONDS

from . import children
from .rows import EventRow, RunRow, State, StepRow
from .settling import is_reached, open_waits, settle


def record(state: State, event: NewEvent, now: Instant) -> EventRow:
    """Into the inbox; one whose id is there is left alone."""
    known = state.event_ids.get((event.tenant, event.id))
    if known is not None:
        return known
    state.event_seq += 1
    row = EventRow(
        seq=state.event_seq, id=event.id, tenant=event.tenant, topic=event.topic, payload=event.payload,
        run=event.run, at=now,
        keep_seconds=EVENT_KEEP_SECONDS if event.keep_seconds is None else event.keep_seconds,
    )  # fmt: skip
    state.events.append(row)
    state.event_ids[event.tenant, event.id] = row
    return row


def emit(state: State, event: NewEvent, now: Instant) -> Emitted:
    known = state.event_ids.get((event.tenant, event.id))
    if known is None and event.run is not None:
        _addressable(state, event)
    recorded = record(state, event, now)
    hand_over(state, recorded, now)
    return Emitted(recorded.woken, known is not None)


def _addressable(state: State, event: NewEvent) -> None:
    assert event.run is not None
    row = state.runs.get(event.run)
    if row is None or row.deleted_at is not None or row.tenant != event.tenant:
        raise UnknownRun(event.run)
    if row.status in FINAL:
        raise IllegalMove(row.id, "emit", row.status)


def deliver(state: State, now: Instant) -> int:
    woken = sum(hand_over(state, event, now) for event in state.events if not event.delivered)
    return woken + children.carry_out(state, now)


def hand_over(state: State, event: EventRow, now: Instant) -> int:
    """Let those whom the event may be for look; answers how many runs an event woke."""
    woken = 0
    for row, wait in [] if event.delivered else _waiters(state, event):
        # The wait takes its oldest event, which may be another one that is not delivered yet.
        reached = is_reached(row)
        woken += isinstance(settle(state, row, wait, now), EventRow) and reached
    event.delivered = True
    return woken


def _waiters(state: State, event: EventRow) -> list[tuple[RunRow, StepRow]]:
    """The open waits on the event's topic, by run and seq; those of its run, if it is addressed."""
    pairs = [
        (row, wait)
        for row in state.runs.values()
        if row.tenant == event.tenant and event.run in {None, row.id}
        for wait in open_waits(row)
        if wait.topic == event.topic
    ]
    return sorted(pairs, key=lambda pair: (pair[0].id, pair[1].seq))
