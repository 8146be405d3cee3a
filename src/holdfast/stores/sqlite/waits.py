"""Waits and events: emit, deliver, and what it means for a run that a wait of its is settled."""

from __future__ import annotations

from typing import Any

from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import Instant, NewEvent, Step
from holdfast.store import EVENT_KEEP_SECONDS
from holdfast.stores.durations import micros

from . import plans
from .database import Database, Row
from .settling import Way
from .sql import statements

_SQL = statements("waits")

Cursor = tuple[int, str, int]  # an event, and the run and step number up to which it was handed over
FIRST: Cursor = (0, "", -1)


def settle(db: Database, now: Instant, run: str, wait: Step) -> bool | None:
    """Settle the wait if what it waits for has come.

    True: it has, and reached the run. False: its time has, or the run is paused or deleted. None: not yet.
    """
    way = Way(db, now, run)
    entry = way.look(wait)
    if entry is None:
        return None
    go_on(way, wait, entry)
    way.write()
    return way.is_reached and ("event" in entry or "child" in entry)


def go_on(way: Way, wait: Step, entry: dict[str, Any]) -> None:
    """Let the run learn of it: at once, at its next boundary, or when it is resumed."""
    match way.whose.status:
        case Status.WAITING:
            if way.is_plan and wait.kind is not StepKind.TASK:
                settled = plans.named(way.db, way.run, wait.key)
                status = plans.apply(way, plans.come_to(way, settled), run_at=way.now)
            else:
                way.db.run(_SQL["wake"], (way.now, way.run))
                status = Status.PENDING
            if status is Status.PENDING:
                entry["status"] = status
        case Status.PENDING:
            way.db.run(_SQL["hasten"], (way.now, way.run))
        case Status.PAUSED:
            way.db.run(_SQL["owe"], (way.now, way.run))
        case _:
            pass


def open_wait(seq: int, key: str, kind: str, topic: str | None, due_at: Instant | None) -> Step:
    """As much of a wait as settling needs."""
    return Step(seq=seq, key=key, kind=StepKind(kind), status=StepStatus.WAITING, topic=topic, due_at=due_at)


def record(db: Database, now: Instant, event: NewEvent) -> bool:
    """Into the inbox; one whose id is there is left alone."""
    run = None if event.run is None else str(event.run)
    keep_until = now + micros(max(EVENT_KEEP_SECONDS, event.keep_seconds or 0.0))
    db.run(_SQL["record"], (event.tenant, event.topic, event.id, run, event.payload, now, keep_until))
    return bool(db.changes())


def emit(db: Database, now: Instant, event: NewEvent, limit: int) -> tuple[int, bool, Cursor | None]:
    """Record it, hand it to the first `limit` waiters: its seq, whether it was there, and what is left."""
    seq, known = take_in(db, now, event)
    _, left = deliver(db, now, limit, (seq, "", -1), only=True)
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
            return woken_runs, cursor if event[0] == cursor[0] else (event[0], "", -1)
        page = _waiters(db, event, cursor if event[0] == cursor[0] else (event[0], "", -1), left)
        for run, *wait in page:
            woken_runs += settle(db, now, run, open_wait(*wait)) is True
        if len(page) == left:
            return woken_runs, (event[0], page[-1][0], page[-1][1])
        db.run(_SQL["delivered"], (event[0],))
        # An event for no one costs as well, or a thousand of them would make one long commit.
        left, cursor = left - max(1, len(page)), (event[0] + 1, "", -1)
    return woken_runs, None


def _waiters(db: Database, event: Row, cursor: Cursor, limit: int) -> list[Row]:
    _, tenant, topic, run = event
    if run is not None:
        return db.all(_SQL["addressed_waiters"], (tenant, topic, run, cursor[2], limit))
    return db.all(_SQL["waiters"], (tenant, topic, cursor[1], cursor[2], limit))
