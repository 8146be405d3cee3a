"""The inbox: events are recorded, looked up, and marked as delivered."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status
from holdfast.machine.durations import micros
from holdfast.machine.relocating import send_there
from holdfast.records import Instant, NewEvent
from holdfast.stores.sqlite.connection.database import Database, text
from holdfast.stores.sqlite.sql import statements

_SQL = statements("chores/inbox")


def record(db: Database, now: Instant, event: NewEvent) -> int | None:
    """Record an event and return its number. An event with a known id changes nothing and returns None."""
    run = None if event.run is None else str(event.run)
    keep_until = now + micros(max(EVENT_KEEP_SECONDS, event.keep_seconds or 0.0))
    args = (event.tenant, event.topic, event.id, run, event.payload, now, keep_until)
    recorded = db.one(_SQL["record"], args)
    return None if recorded is None else int(recorded[0])


def take_in(db: Database, now: Instant, event: NewEvent) -> tuple[int, bool]:
    """Record an event unless it is known. Return its number, and True when it was known."""
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
        raise IllegalMove(present, "emit", status, send_there(row[2]))


def woken(db: Database, seq: int) -> int:
    """Return how many runs an event has reached so far."""
    row = db.one(_SQL["woken"], (seq,))
    return row[0] if row is not None else 0


def still_pending(db: Database, runs: Sequence[str]) -> int:
    """Return how many of these runs no worker has claimed yet."""
    row = db.one(_SQL["still_pending"], (text(runs),))
    return row[0] if row is not None else 0


def undelivered(db: Database, seq: int = 0) -> int | None:
    """Return the oldest event from this number on that is not delivered. It writes nothing."""
    row = db.one(_SQL["undelivered"], (seq,))
    return None if row is None else row[0]
