"""Waits and events: emit, deliver. One slice of the waits of an event a commit."""

from __future__ import annotations

from typing import NamedTuple

from holdfast import bounds
from holdfast.machine.waking import settle
from holdfast.records import Instant, NewEvent

from .database import Database, Row
from .inbox import take_in, undelivered
from .sql import statements
from .view import SqliteView

_SQL = statements("waits")

Place = tuple[str, int]  # the run and step number up to which an event was handed over
_START: Place = ("", -1)


class Slice(NamedTuple):
    """Part of a commit: runs woken, the event if it is not through, bytes copied, runs that it reached."""

    woken: list[str]
    left: int | None
    copied: int = 0
    reached: int = 0


def emit(db: Database, now: Instant, event: NewEvent, limit: int) -> tuple[int, bool, Slice]:
    """Record it, hand it to the first `limit` waiters: its seq, whether it was there, and how far it came."""
    seq, known = take_in(db, now, event)
    if known:
        return seq, known, hand_over(db, now, limit, seq)
    run = None if event.run is None else str(event.run)
    fresh = (seq, event.tenant, event.topic, run, len(event.payload))
    return seq, known, _hand_over(db, now, limit, fresh, None)


def hand_over(db: Database, now: Instant, limit: int, seq: int) -> Slice:
    """Hand one event to the next `limit` of its waits; fewer when the values are large.

    How far it has come is kept in the same commit: whoever delivers next, in whatever process, goes on there.
    """
    event = db.one(_SQL["undelivered"], (seq,))
    if event is None or event[0] != seq:
        return Slice([], None)
    return _hand_over(db, now, limit, event, db.one(_SQL["place"], (seq,)))


def _hand_over(db: Database, now: Instant, limit: int, event: Row, place: Row | None) -> Slice:
    """The count of runs reached stands with the place: the event's row, with its payload, is written once."""
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
    """Let these waits look: runs woken, and where to go on if that was too much."""
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
    """The events behind one, as long as they cost little: what they came to, and the last of them."""
    woken, copied, left = list[str](), 0, limit
    while left > 0 and copied < bounds.BATCH_BYTES and (event := undelivered(db, after + 1)) is not None:
        one, after = hand_over(db, now, left, event), event
        woken, copied = woken + one.woken, copied + one.copied
        if one.left is not None:
            return Slice(woken, one.left, copied), after
        # An event for no one costs as well, or a thousand of them would make one long commit.
        left -= max(1, len(one.woken))
    return Slice(woken, None, copied), after


def _waiters(db: Database, event: Row, place: Place, limit: int) -> list[Row]:
    _, tenant, topic, run, _ = event
    if run is not None:
        return db.all(_SQL["addressed_waiters"], (tenant, topic, run, place[1], limit))
    return db.all(_SQL["waiters"], (tenant, topic, *place, limit))
