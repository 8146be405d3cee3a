"""Waits and events: emit, deliver, and the one way in which a wait is settled.

A wait is settled once, whoever notices first: the park that looks, the keeper that finds it due,
the event that comes. All of them ask `settle`.
"""

from __future__ import annotations

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import Error, Instant, NewEvent, Step
from holdfast.store import EVENT_KEEP_SECONDS
from holdfast.stores.durations import micros

from .database import Database, Row, text
from .sql import statements
from .start import TRAIL
from .steps import raw

_SQL = statements("waits")

Cursor = tuple[int, str, int]  # an event, and the run and step number up to which it was handed over
FIRST: Cursor = (0, "", 0)


def settle(db: Database, now: Instant, run: str, wait: Step) -> bool | None:
    """Settle the wait if its event or its time has come.

    True: by an event, which reached the run. False: by its time, or in a pause, or deleted. None: not yet.
    """
    event = _available(db, run, wait.key) if wait.kind is StepKind.EVENT else None
    if event is not None:
        return _succeed(db, now, run, wait.key, event)
    if wait.kind in {StepKind.SLEEP, StepKind.EVENT} and wait.due_at is not None and wait.due_at <= now:
        _lapse(db, now, run, wait)
        return False
    return None


def open_wait(seq: int, key: str, kind: str, topic: str | None, due_at: Instant | None) -> Step:
    """As much of a wait as settling needs."""
    return Step(seq=seq, key=key, kind=StepKind(kind), status=StepStatus.WAITING, topic=topic, due_at=due_at)


def _available(db: Database, run: str, key: str) -> Row | None:
    found = (db.one(_SQL["available"], (run, key)), db.one(_SQL["available_addressed"], (run, key)))
    return min((event for event in found if event is not None), default=None)


def _succeed(db: Database, now: Instant, run: str, key: str, event: Row) -> bool:
    seq, event_id, topic, at, payload = event
    output = text({"id": event_id, "topic": topic, "at": at, "payload": raw(payload)})
    db.run(_SQL["settle"], (run, "succeeded", output, None, now, key))
    db.run(_SQL["receipt"], (run, seq, key))
    before, is_deleted = _wake(db, now, run)
    reached = before is not Status.PAUSED and not is_deleted
    if reached:
        db.run(_SQL["count"], (seq,))
    db.run(TRAIL, (run, "woken", text({"step": key, "event": event_id} | _from_then_on(before)), now))
    return reached


def _lapse(db: Database, now: Instant, run: str, wait: Step) -> None:
    if wait.kind is StepKind.SLEEP:
        status, output, error, what = "succeeded", "null", None, "woken"
    else:
        message = f"no event on {wait.topic} before the deadline"
        lapsed = text(Error(kind="timeout", message=message, step=wait.key))
        status, output, error, what = "failed", None, lapsed, "timed_out"
    db.run(_SQL["settle"], (run, status, output, error, now, wait.key))
    before, _ = _wake(db, now, run)
    db.run(TRAIL, (run, what, text({"step": wait.key} | _from_then_on(before)), now))


def _wake(db: Database, now: Instant, run: str) -> tuple[Status, bool]:
    """Let the run learn of it; answers what the run was, and whether it is deleted."""
    row = db.one(_SQL["status"], (run,))
    assert row is not None
    before = Status(row[0])
    change = {Status.WAITING: "wake", Status.PENDING: "hasten", Status.PAUSED: "owe"}.get(before)
    if change is not None:
        db.run(_SQL[change], (now, run))
    return before, row[1] is not None


def _from_then_on(before: Status) -> dict[str, str]:
    return {"status": "pending"} if before is Status.WAITING else {}


def record(db: Database, now: Instant, event: NewEvent) -> bool:
    """Into the inbox; one whose id is there is left alone."""
    run = None if event.run is None else str(event.run)
    keep_until = now + micros(max(EVENT_KEEP_SECONDS, event.keep_seconds or 0.0))
    db.run(_SQL["record"], (event.tenant, event.topic, event.id, run, event.payload, now, keep_until))
    return bool(db.changes())


def emit(db: Database, now: Instant, event: NewEvent, limit: int) -> tuple[int, bool, Cursor | None]:
    """Record it, hand it to the first `limit` waiters: its seq, whether it was there, and what is left."""
    seq, known = take_in(db, now, event)
    _, left = deliver(db, now, limit, (seq, "", 0), only=True)
    return seq, known, left


def take_in(db: Database, now: Instant, event: NewEvent) -> tuple[int, bool]:
    """Record it, unless it is there: its seq, and whether it was."""
    known = db.one(_SQL["there"], (event.tenant, event.id))
    if known is None:
        if event.run is not None:
            _refuse_unless_open(db, event)
        record(db, now, event)
    there = db.one(_SQL["there"], (event.tenant, event.id))
    assert there is not None
    return there[0], known is not None


def _refuse_unless_open(db: Database, event: NewEvent) -> None:
    assert event.run is not None
    row = db.one(_SQL["addressee"], (str(event.run), event.tenant))
    if row is None:
        raise UnknownRun(event.run)
    if (status := Status(row[0])) in FINAL:
        raise IllegalMove(event.run, "emit", status)


def woken(db: Database, seq: int) -> int:
    """How many runs an event has reached so far."""
    row = db.one(_SQL["woken"], (seq,))
    return row[0] if row is not None else 0


def undelivered(db: Database) -> bool:
    """Whether there is anything to hand over; a look, no write."""
    return db.one(_SQL["undelivered"], (0,)) is not None


def deliver(
    db: Database, now: Instant, limit: int, cursor: Cursor, *, only: bool = False
) -> tuple[int, Cursor | None]:
    """Hand over from `cursor` on (`only`: that event), to `limit` waits: runs woken, and where to go on."""
    woken_runs, left, first = 0, limit, cursor[0]
    while (event := db.one(_SQL["undelivered"], (cursor[0],))) is not None:
        if only and event[0] != first:
            break
        if left <= 0:
            return woken_runs, cursor if event[0] == cursor[0] else (event[0], "", 0)
        page = _waiters(db, event, cursor if event[0] == cursor[0] else (event[0], "", 0), left)
        for run, *wait in page:
            woken_runs += settle(db, now, run, open_wait(*wait)) is True
        if len(page) == left:
            return woken_runs, (event[0], page[-1][0], page[-1][1])
        db.run(_SQL["delivered"], (event[0],))
        # An event for no one costs as well, or a thousand of them would make one long commit.
        left, cursor = left - max(1, len(page)), (event[0] + 1, "", 0)
    return woken_runs, None


def _waiters(db: Database, event: Row, cursor: Cursor, limit: int) -> list[Row]:
    _, tenant, topic, run = event
    if run is not None:
        return db.all(_SQL["addressed_waiters"], (tenant, topic, run, cursor[2], limit))
    return db.all(_SQL["waiters"], (tenant, topic, cursor[1], cursor[2], limit))
