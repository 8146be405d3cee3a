"""Waits and events: emit, deliver, and the one way in which a wait is settled.

A wait is settled once, whoever notices first: the park that looks, the keeper that finds it due,
the event that comes. All of them ask `settle`.
"""

from __future__ import annotations

from math import inf

import msgspec

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, WAIT_MOVES, WAITS, Status, StepKind, StepStatus, WaitMove
from holdfast.records import Emitted, Error, Instant, Json, NewEvent, Step
from holdfast.store import EVENT_KEEP_SECONDS

from .rows import EventRow, RunRow, State, StepRow, check

LAPSES = next(rule.settles for rule in WAIT_MOVES if rule.move is WaitMove.LAPSE)
COME = (StepStatus.SUCCEEDED, StepStatus.FAILED)


def open_waits(row: RunRow) -> list[StepRow]:
    """What the run waits for, first due first; nothing once it has ended."""
    waits = [step for step in row.steps.values() if step.status is StepStatus.WAITING]
    return sorted(waits, key=lambda wait: (inf if wait.due_at is None else wait.due_at, wait.seq))


def settled_since(row: RunRow, known: int | None) -> tuple[Step, ...]:
    """The waits that were settled behind the holder's back, oldest first."""
    if known is None:
        return ()
    news = [s for s in row.steps.values() if s.kind in WAITS and s.status in COME and s.seq > known]
    return tuple(step.shown() for step in sorted(news, key=lambda step: step.seq))


def available(state: State, row: RunRow, wait: StepRow) -> EventRow | None:
    """The oldest event that this wait may take, stored at or before its deadline."""
    for event in state.events:
        fits = (event.tenant, event.topic) == (row.tenant, wait.topic)
        mine = event.run == row.id or (event.run is None and event.seq > row.mark)
        in_time = wait.due_at is None or event.at <= wait.due_at
        if fits and mine and in_time and event.seq > wait.mark and event.seq not in row.receipts:
            return event
    return None


def settle(state: State, row: RunRow, wait: StepRow, now: Instant) -> EventRow | bool:
    """Settle the wait if its event or its time has come: the event, or True; else False."""
    event = available(state, row, wait) if wait.kind is StepKind.EVENT else None
    if event is not None:
        _succeed(state, row, wait, event, now)
        return event
    if wait.kind in LAPSES and wait.due_at is not None and wait.due_at <= now:
        _lapse(state, row, wait, now)
        return True
    return False


def _succeed(state: State, row: RunRow, wait: StepRow, event: EventRow, now: Instant) -> None:
    row.receipts[event.seq] = wait.key
    event.woken += _is_reached(row)
    wait.status, wait.output = StepStatus.SUCCEEDED, _output(event)
    status = _wake(row, wait, now)
    state.note(row, "woken", now, step=wait.key, event=event.id, **status)
    check(row)


def _is_reached(row: RunRow) -> bool:
    """Whether an event for the run gets it going: paused or deleted, it only finds it there later."""
    return row.status is not Status.PAUSED and row.deleted_at is None


def _lapse(state: State, row: RunRow, wait: StepRow, now: Instant) -> None:
    if wait.kind is StepKind.SLEEP:
        wait.status, wait.output = StepStatus.SUCCEEDED, "null"
        state.note(row, "woken", now, step=wait.key, **_wake(row, wait, now))
    else:
        error = Error(kind="timeout", message=f"no event on {wait.topic} before the deadline", step=wait.key)
        wait.status, wait.error = StepStatus.FAILED, msgspec.json.encode(error).decode()
        state.note(row, "timed_out", now, step=wait.key, **_wake(row, wait, now))
    check(row)


def _wake(row: RunRow, wait: StepRow, now: Instant) -> dict[str, Status]:
    """Number the outcome by when it became known, and let the run learn of it."""
    wait.seq, wait.finished_at = row.next_seq(), now
    match row.status:
        case Status.WAITING:
            row.status, row.run_at, row.attempt, row.crashes = Status.PENDING, now, 0, 0
            return {"status": Status.PENDING}
        case Status.PENDING:
            row.run_at = min(row.run_at, now)
        case Status.PAUSED:
            row.resume_to, row.run_at = Status.PENDING, now
        case _:
            pass
    return {}


def _output(event: EventRow) -> Json:
    payload = msgspec.Raw(event.payload.encode())
    return msgspec.json.encode(
        {"id": event.id, "topic": event.topic, "at": event.at, "payload": payload}
    ).decode()


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
    return sum(hand_over(state, event, now) for event in state.events if not event.delivered)


def hand_over(state: State, event: EventRow, now: Instant) -> int:
    """Let those whom the event may be for look; answers how many runs an event woke."""
    woken = 0
    for row, wait in [] if event.delivered else _waiters(state, event):
        # The wait takes its oldest event, which may be another one that is not delivered yet.
        reached = _is_reached(row)
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
