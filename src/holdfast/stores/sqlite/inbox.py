"""The inbox: events are recorded, found, and marked as delivered."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status
from holdfast.machine.durations import micros
from holdfast.records import Instant, NewEvent

from .database import Database, text
from .sql import statements

_SQL = statements("waits")


def record(db: Database, now: Instant, event: NewEvent) -> int | None:
    """Into the inbox: its seq. One whose id is there is left alone: None."""
    run = None if event.run is None else str(event.run)
    keep_until = now + micros(max(EVENT_KEEP_SECONDS, event.keep_seconds or 0.0))
    args = (event.tenant, event.topic, event.id, run, event.payload, now, keep_until)
    recorded = db.one(_SQL["record"], args)
    return None if recorded is None else int(recorded[0])


def take_in(db: Database, now: Instant, event: NewEvent) -> tuple[int, bool]:
    """Record it, unless it is there: its seq, and whether it was."""
    known = db.one(_SQL["there"], (event.tenant, event.id))
    if known is not None:
        return int(known[0]), True
    if event.run is not None:
        _refuse_unless_open(db, event)
    seq = record(db, now, event)
    assert seq is not None
    return seq, False


def _refuse_unless_open(db: Database, event: NewEvent) -> None:
    assert event.run is not None
    row = db.one(_SQL["addressee"], (str(event.run), event.tenant))
    if row is None:
        raise UnknownRun(event.run)
    present, status = UUID(row[0]), Status(row[1])
    if status in FINAL:
        raise IllegalMove(present, "emit", status)


def woken(db: Database, seq: int) -> int:
    """How many runs an event has reached so far."""
    row = db.one(_SQL["woken"], (seq,))
    return row[0] if row is not None else 0


def still_pending(db: Database, runs: Sequence[str]) -> int:
    """How many of these runs nobody has taken up yet."""
    row = db.one(_SQL["still_pending"], (text(runs),))
    return row[0] if row is not None else 0


def undelivered(db: Database, seq: int = 0) -> int | None:
    """The oldest event that is not delivered, from a number on; a look, no write."""
    row = db.one(_SQL["undelivered"], (seq,))
    return None if row is None else row[0]
