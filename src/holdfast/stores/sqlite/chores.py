"""What a keeper does: expire, time_out, lapse. A slice each, so that no commit is long."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from holdfast import bounds
from holdfast.lifecycle import FINAL, StepKind
from holdfast.machine import chores
from holdfast.machine.waking import settle
from holdfast.records import Chore, Instant

from . import sleeps
from .database import Database
from .held import RunRow
from .sql import statements
from .view import SqliteView

_EXPIRE, _TIME_OUT, _LAPSE = statements("expire"), statements("time_out"), statements("lapse")

Done = tuple[int, list[UUID]]  # how many, and the runs among them that were failed


def expire(db: Database, now: Instant, limit: int) -> Done:
    """Leases that ran out: to the queue, into a pause, or failed at the crash cap."""
    return _each(SqliteView(db, now), db.all(_EXPIRE["past"], (now, limit)), chores.expire)


def time_out(db: Database, now: Instant, limit: int) -> Done:
    """Runs whose own time is over: failed, wherever they are."""
    return _each(SqliteView(db, now), db.all(_TIME_OUT["past"], (now, limit)), chores.time_out)


def _each(view: SqliteView, names: list[tuple[str]], move: Callable[[SqliteView, RunRow], None]) -> Done:
    view.prefetch(dict.fromkeys(name for (name,) in names))
    runs = [run for (name,) in names if (run := view.run_of(name)) is not None]
    for run in runs:
        move(view, run)
    view.save()
    return len(names), [run.id for run in runs if run.status in FINAL]


def lapse(db: Database, now: Instant, limit: int, *, wait_timeouts: bool = True) -> tuple[list[str], bool]:
    """Waits whose time has come, first due first: the runs of those that were settled, and whether more may
    be left. Fewer than `limit` when the values are large."""
    found = db.all(_LAPSE["due" if wait_timeouts else "due_but_plans"], (now, limit))
    woken = sleeps.wake(db, now, [(run, key) for run, key, kind in found if kind == StepKind.SLEEP])
    due = [(run, key) for run, key, _ in found if (run, key) not in woken]
    view, lapsed = SqliteView(db, now), [run for run, _ in woken]
    view.prefetch(dict.fromkeys(name for name, _ in due))
    view.prefetch_steps(due)
    for name, key in due:
        run = view.run_of(name)
        wait = None if run is None else view.step(run, key)
        if run is not None and wait is not None:
            settle(view, run, wait)
        lapsed.append(name)
        if view.copied >= bounds.BATCH_BYTES:
            break
    view.save()
    return lapsed, len(lapsed) < len(found) or len(found) == limit


def is_due(db: Database, now: Instant, chore: Chore, *, wait_timeouts: bool = True) -> bool:
    """Whether one chore would find something; a look, no write."""
    at = next_at(db, chore, wait_timeouts=wait_timeouts)
    return at is not None and at <= now


def next_at(db: Database, chore: Chore, *, wait_timeouts: bool = True) -> Instant | None:
    """When a chore may next find something: a lease ends after its instant, all else is due at it."""
    match chore:
        case Chore.EXPIRE:
            row = db.one(_EXPIRE["next"])
        case Chore.TIME_OUT:
            row = db.one(_TIME_OUT["next"])
        case Chore.LAPSE:
            row = db.one(_LAPSE["next" if wait_timeouts else "next_but_plans"])
        case _:
            row = db.one(_LAPSE["next_news"])
    at: Instant | None = None if row is None else row[0]
    return at + 1 if at is not None and chore is Chore.EXPIRE else at
