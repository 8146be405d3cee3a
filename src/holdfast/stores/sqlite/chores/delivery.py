"""Delivery: hand an event to the runs that wait for it, in slices of one commit each."""

from __future__ import annotations

from typing import NamedTuple

from holdfast import bounds
from holdfast.machine.waking import settle
from holdfast.records import Instant, NewEvent
from holdfast.stores.sqlite.connection.database import Database, Row
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view.view import SqliteView

from .inbox import take_in, undelivered

_SQL = statements("chores/inbox")

Place = tuple[str, int]  # the run and step number of the last wait that an event was handed to
_START: Place = ("", -1)


class Slice(NamedTuple):
    """The outcome of one slice: runs woken, the event if it has further waits, bytes copied, runs reached."""

    woken: list[str]
    left: int | None
    copied: int = 0
    reached: int = 0


def emit(db: Database, now: Instant, event: NewEvent, limit: int) -> tuple[int, bool, Slice]:
    """Record an event and hand it to the first `limit` waits. Return its number, True if known, and the
    slice."""
    seq, known = take_in(db, now, event)
    if known:
        return seq, known, hand_over(db, now, limit, seq)
    run = None if event.run is None else str(event.run)
    fresh = (seq, event.tenant, event.topic, run, len(event.payload))
    return seq, known, _hand_over(db, now, limit, fresh, None)


def hand_over(db: Database, now: Instant, limit: int, seq: int) -> Slice:
    """Hand one event to its next `limit` waits; to fewer when the values are large.

    The position is stored in the same commit, so any process can continue from there.
    """
    event = db.one(_SQL["undelivered"], (seq,))
    if event is None or event[0] != seq:
        return Slice([], None)
    return _hand_over(db, now, limit, event, db.one(_SQL["place"], (seq,)))


def _hand_over(db: Database, now: Instant, limit: int, event: Row, place: Row | None) -> Slice:
    """The count of runs is stored with the position, so the row of the event, with its payload, is
    written once."""
    seq, view = event[0], SqliteView(db, now)
    limit = min(limit, max(1, bounds.LARGE_BATCH_BYTES // max(1, event[4])))
    page = _waiters(db, event, (place[0], place[1]) if place is not None else _START, limit)
    woken, left = _settled(view, seq, page) if page else ([], None)
    if left is None and len(page) == limit:
        left = page[-1][:2]
    reached = view.reached_apart(seq)
    view.save()
    part = Slice(woken, None if left is None else seq, view.copied, reached)
    so_far = reached if place is None else reached + place[2]
    if left is not None:
        db.run(_SQL["keep_place"], (seq, *left, so_far))
        return part
    db.run(_SQL["delivered"], (so_far, seq))
    if place is not None:
        db.run(_SQL["forget_place"], (seq,))
    return part


def _settled(view: SqliteView, event: int, page: list[Row]) -> tuple[list[str], Place | None]:
    """Settle these waits. Return the runs woken, and the position to continue from if that was too much."""
    woken = list[str]()
    pairs = [(run, key) for run, _, key in page]
    view.prefetch(dict.fromkeys(run for run, _ in pairs))
    view.prefetch_steps(pairs)
    view.prefetch_takers(event, pairs)
    left: Place | None = None
    for name, number, key in page:
        run = view.run_of(name)
        wait = None if run is None else view.step(run, key)
        if run is not None and wait is not None and settle(view, run, wait):
            woken.append(name)
        if view.copied >= bounds.BATCH_BYTES:
            left = (name, number)
            break
    return woken, left


def hand_over_fresh(db: Database, now: Instant, limit: int, after: int) -> tuple[Slice, int]:
    """Deliver the events after a number, as long as they cost little. Return the slice and the last event."""
    woken, copied, left = list[str](), 0, limit
    while left > 0 and copied < bounds.BATCH_BYTES and (event := undelivered(db, after + 1)) is not None:
        part, after = hand_over(db, now, left, event), event
        woken, copied = woken + part.woken, copied + part.copied
        if part.left is not None:
            return Slice(woken, part.left, copied), after
        # An event that wakes no run counts as well: a thousand of them would make one long commit.
        left -= max(1, len(part.woken))
    return Slice(woken, None, copied), after


def _waiters(db: Database, event: Row, place: Place, limit: int) -> list[Row]:
    _, tenant, topic, run, _ = event
    if run is not None:
        return db.all(_SQL["addressed_waiters"], (tenant, topic, run, place[1], limit))
    return db.all(_SQL["waiters"], (tenant, topic, *place, limit))
