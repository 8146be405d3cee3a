"""Waits and events: emit, deliver, and what it means for a run that a wait of its is settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.bounds import BATCH_BYTES
from holdfast.errors import IllegalMove, UnknownRun
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.machine.durations import micros
from holdfast.records import Instant, NewEvent, Step
from holdfast.store import EVENT_KEEP_SECONDS

from . import plans
from .database import Database, Row, text
from .settling import Way, open_wait
from .sql import statements

_SQL = statements("waits")

Place = tuple[str, int]  # the run and step number up to which an event was handed over
_START: Place = ("", -1)


class Settled(NamedTuple):
    """One wait that was settled. `woken`: what it waited for has come, and reached the run. False: its time
    has, or the run is paused or deleted. `copied`: bytes of values."""

    woken: bool
    copied: int


class Slice(NamedTuple):
    """Part of a commit: runs woken, the event if it is not through, bytes copied."""

    woken: list[str]
    left: int | None
    copied: int = 0


def settle(db: Database, now: Instant, run: str, wait: Step) -> Settled | None:
    """Settle the wait if what it waits for has come, or its time; None: not yet."""
    way = Way(db, now, run)
    entry = way.look(wait)
    if entry is None:
        return None
    go_on(way, wait, entry)
    way.write()
    return Settled(way.is_reached and ("event" in entry or "child" in entry), way.copied)


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


def record(db: Database, now: Instant, event: NewEvent) -> bool:
    """Into the inbox; one whose id is there is left alone."""
    run = None if event.run is None else str(event.run)
    keep_until = now + micros(max(EVENT_KEEP_SECONDS, event.keep_seconds or 0.0))
    db.run(_SQL["record"], (event.tenant, event.topic, event.id, run, event.payload, now, keep_until))
    return bool(db.changes())


def emit(db: Database, now: Instant, event: NewEvent, limit: int) -> tuple[int, bool, Slice]:
    """Record it, hand it to the first `limit` waiters: its seq, whether it was there, and how far it came."""
    seq, known = take_in(db, now, event)
    return seq, known, hand_over(db, now, limit, seq)


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


def still_pending(db: Database, runs: Sequence[str]) -> int:
    """How many of these runs nobody has taken up yet."""
    row = db.one(_SQL["still_pending"], (text(runs),))
    return row[0] if row is not None else 0


def undelivered(db: Database, seq: int = 0) -> int | None:
    """The oldest event that is not delivered, from a number on; a look, no write."""
    row = db.one(_SQL["undelivered"], (seq,))
    return None if row is None else row[0]


def hand_over(db: Database, now: Instant, limit: int, seq: int) -> Slice:
    """Hand one event to the next `limit` of its waits; fewer when the values are large.

    How far it has come is kept in the same commit: whoever delivers next, in whatever process, goes on there.
    """
    woken, copied = list[str](), 0
    event = db.one(_SQL["undelivered"], (seq,))
    if event is None or event[0] != seq:
        return Slice([], None)
    place = db.one(_SQL["place"], (seq,))
    page = _waiters(db, event, place or _START, limit)
    for run, *wait in page:
        settled = settle(db, now, run, open_wait(*wait))
        if settled is not None:
            copied += settled.copied
            woken += [run] * settled.woken
        if copied >= BATCH_BYTES:
            return _cut(db, seq, (run, wait[0]), woken, copied)
    if len(page) == limit:
        return _cut(db, seq, page[-1][:2], woken, copied)
    db.run(_SQL["delivered"], (seq,))
    if place is not None:
        db.run(_SQL["forget_place"], (seq,))
    return Slice(woken, None, copied)


def _cut(db: Database, seq: int, place: Place, woken: list[str], copied: int) -> Slice:
    db.run(_SQL["keep_place"], (seq, *place))
    return Slice(woken, seq, copied)


def hand_over_fresh(db: Database, now: Instant, limit: int, after: int) -> tuple[Slice, int]:
    """The events behind one, as long as they cost little: what they came to, and the last of them."""
    woken, copied, left = list[str](), 0, limit
    while left > 0 and copied < BATCH_BYTES and (event := undelivered(db, after + 1)) is not None:
        one, after = hand_over(db, now, left, event), event
        woken, copied = woken + one.woken, copied + one.copied
        if one.left is not None:
            return Slice(woken, one.left, copied), after
        # An event for no one costs as well, or a thousand of them would make one long commit.
        left -= max(1, len(one.woken))
    return Slice(woken, None, copied), after


def _waiters(db: Database, event: Row, place: Place, limit: int) -> list[Row]:
    _, tenant, topic, run = event
    if run is not None:
        return db.all(_SQL["addressed_waiters"], (tenant, topic, run, place[1], limit))
    return db.all(_SQL["waiters"], (tenant, topic, *place, limit))
