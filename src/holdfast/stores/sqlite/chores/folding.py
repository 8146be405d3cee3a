"""Folding: changes of the counts become part of the kept counts, and old minutes are forgotten.

A slice of changes is one commit. How many there are is known without counting: their numbers have no gaps.
"""

from __future__ import annotations

from collections import Counter

from holdfast.contract import FOLD_MAX, FOLD_SECONDS, RATE_SECONDS
from holdfast.machine.durations import micros
from holdfast.records import Instant
from holdfast.stores.sqlite.connection.database import Database
from holdfast.stores.sqlite.sql import statements

SQL = statements("counts")
ALL = ""  # the tenant under which the counts of all tenants are kept
PILE_MAX = 20_000  # changes from which on the writer folds them itself


def fold_at(db: Database) -> Instant | None:
    """Return when changes are to be folded; None: there are none. A full slice is due at once."""
    first, last, at = db.one(SQL["pile"]) or (None, None, None)
    if first is None:
        return None
    return 0 if last - first >= FOLD_MAX else int(at) + micros(FOLD_SECONDS)


def pile(db: Database) -> int:
    """Return how many changes are not folded."""
    first, last, _ = db.one(SQL["pile"]) or (None, None, None)
    return 0 if first is None else int(last - first + 1)


def fold(db: Database, now: Instant, limit: int = FOLD_MAX) -> int:
    """Fold the oldest changes. Return how many."""
    first, last, _ = db.one(SQL["pile"]) or (None, None, None)
    if first is None:
        return 0
    end = min(last, first + limit - 1)
    counts, totals, rates = (
        Counter[tuple[str, str, str]](),
        Counter[tuple[str, str, str]](),
        Counter[object](),
    )
    for tenant, kind, before, after, what, minute, number in db.all(SQL["some"], (end,)):
        for whose in {tenant, ALL}:
            if before is not None:
                counts[whose, kind, before] -= number
            if after is not None:
                counts[whose, kind, after] += number
            if what is not None:
                totals[whose, kind, what] += number
                rates[whose, kind, what, minute] += number
    moved = [(*key, number) for key, number in counts.items() if number]
    for name, rows in (("add", moved), ("add_total", _rows(totals)), ("add_rate", _rows(rates))):
        if rows:
            db.many(SQL[name], rows)
    fewer = [key[:3] for key in moved if key[3] < 0]
    if fewer:
        db.many(SQL["remove_zero"], fewer)
    db.run(SQL["forget"], (end,))
    _forget_minutes(db, now)
    return int(end - first + 1)


def _rows(numbers: Counter[tuple[str, str, str]] | Counter[object]) -> list[tuple[object, ...]]:
    return [(*key, number) for key, number in numbers.items()]  # type: ignore[misc]  # all keys are tuples


def _forget_minutes(db: Database, now: Instant) -> None:
    """Remove old minutes, at least as many as a fold can add."""
    until = now - micros(RATE_SECONDS)
    (oldest,) = db.one(SQL["oldest_minute"]) or (None,)
    if oldest is not None and oldest < until:
        db.run(SQL["forget_minutes"], (until, 4 * FOLD_MAX))
