"""expire, time_out and lapse: leases, runs and waits whose time is over. In slices, so that no commit is
long.

Sleeps of code runs have a fast path beside the machine: a few statements serve a whole slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from holdfast import bounds
from holdfast.lifecycle import FINAL, StepKind
from holdfast.machine import chores
from holdfast.machine.waking import settle
from holdfast.records import Chore, Instant
from holdfast.stores.sqlite.connection.database import Database, text
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view.machine_rows import RunRow
from holdfast.stores.sqlite.view.view import SqliteView

from .folding import fold_at

_EXPIRE, _TIME_OUT, _LAPSE = (
    statements("chores/expire"),
    statements("chores/time_out"),
    statements("chores/lapse"),
)
_SLEEPS = statements("chores/sleeps")

Wait = tuple[str, str]  # run and key
Done = tuple[int, list[UUID]]  # the number of runs, and those that failed


def expire(db: Database, now: Instant, limit: int) -> Done:
    """End expired leases: the run goes back to the queue, into a pause, or fails at its crash limit."""
    return _each(SqliteView(db, now), db.all(_EXPIRE["past"], (now, limit)), chores.expire)


def time_out(db: Database, now: Instant, limit: int) -> Done:
    """Fail runs whose timeout has passed, in any status."""
    return _each(SqliteView(db, now), db.all(_TIME_OUT["past"], (now, limit)), chores.time_out)


def _each(view: SqliteView, names: list[tuple[str]], move: Callable[[SqliteView, RunRow], None]) -> Done:
    view.prefetch(dict.fromkeys(name for (name,) in names))
    runs = [run for (name,) in names if (run := view.run_of(name)) is not None]
    for run in runs:
        move(view, run)
    view.save()
    return len(names), [run.id for run in runs if run.status in FINAL]


def lapse(db: Database, now: Instant, limit: int, *, wait_timeouts: bool = True) -> tuple[list[str], bool]:
    """Settle waits that are due, first due first. Return their runs, and True when more may be left.

    It settles fewer than `limit` when the values are large.
    """
    found = db.all(_LAPSE["due" if wait_timeouts else "due_but_plans"], (now, limit))
    # A run with several due waits is left to the machine, which settles them in order, as every store does.
    waits = Counter(run for run, *_ in found)
    lone = [(run, key) for run, key, kind in found if kind == StepKind.SLEEP and waits[run] == 1]
    woken = wake_sleeps(db, now, lone)
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


def wake_sleeps(db: Database, now: int, due: Sequence[Wait]) -> set[Wait]:
    """Settle the sleeps that the fast path can handle, and wake their runs. Return these sleeps.

    All others are left to the machine.
    """
    simple = db.all(_SLEEPS["simple"], {"due": text(due), "now": now}) if due else []
    if simple:
        written = {"sleeps": text(simple), "now": now}
        db.run(_SLEEPS["settle"], written)
        db.run(_SLEEPS["wake"], written)
        db.run(_SLEEPS["woken"], written)
    return {(run, key) for run, key in simple}


def is_due(db: Database, now: Instant, chore: Chore, *, wait_timeouts: bool = True) -> bool:
    """Return True when a chore would find something. It writes nothing."""
    at = next_at(db, chore, wait_timeouts=wait_timeouts)
    return at is not None and at <= now


def next_at(db: Database, chore: Chore, *, wait_timeouts: bool = True) -> Instant | None:
    """Return when a chore may next find something. A lease ends after its instant; all else is due at it."""
    match chore:
        case Chore.EXPIRE:
            row = db.one(_EXPIRE["next"])
        case Chore.TIME_OUT:
            row = db.one(_TIME_OUT["next"])
        case Chore.LAPSE:
            row = db.one(_LAPSE["next" if wait_timeouts else "next_but_plans"])
        case Chore.COUNT:
            return fold_at(db)
        case _:
            row = db.one(_LAPSE["next_news"])
    at: Instant | None = None if row is None else row[0]
    return at + 1 if at is not None and chore is Chore.EXPIRE else at
