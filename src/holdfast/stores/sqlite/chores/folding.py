"""Folding: changes of the counts become part of the kept counts, and old minutes are forgotten.

Changes of the same kind within ten seconds share a row, so there are few rows however many runs change. A
slice of rows is one commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.contract import FOLD_MAX, FOLD_SECONDS, RATE_SECONDS
from holdfast.machine.durations import micros
from holdfast.records import Instant
from holdfast.stores.counting import minute_of
from holdfast.stores.sqlite.connection.database import Database, Row
from holdfast.stores.sqlite.sql import statements

SQL = statements("counts")
ALL = ""  # the tenant under which the counts of all tenants are kept
PILE_MAX = 20_000  # rows from which on the writer folds them itself: a store may have no keeper


def fold_at(db: Database) -> Instant | None:
    """Return when changes are to be folded; None: there are none."""
    row = db.one(SQL["oldest"])
    return None if row is None else int(row[0]) + micros(FOLD_SECONDS)


def is_piled_up(db: Database) -> bool:
    """Return True when too many rows are not folded."""
    (rows,) = db.one(SQL["pile"]) or (0,)
    return bool(rows > PILE_MAX)


def fold(db: Database, now: Instant, *, everything: bool = False) -> int:
    """Fold the oldest rows, of changes that are FOLD_SECONDS old, or of all. Return how many rows."""
    until = now if everything else now - micros(FOLD_SECONDS)
    rows = db.all(SQL["some"], (until, FOLD_MAX))
    if not rows:
        return 0
    counts, totals, rates = Counter[Row](), Counter[Row](), Counter[Row]()
    for slot, tenant, kind, before, after, what, number in rows:
        for whose in {tenant, ALL}:
            if before:
                counts[whose, kind, before] -= number
            if after:
                counts[whose, kind, after] += number
            if what:
                totals[whose, kind, what] += number
                rates[whose, kind, what, minute_of(slot)] += number
    for name, numbers in (("add", counts), ("add_total", totals), ("add_rate", rates)):
        _add(db, SQL[name], numbers)
    fewer = [key for key, number in counts.items() if number < 0]
    if fewer:
        db.many(SQL["remove_zero"], fewer)
    db.run(SQL["forget"], rows[-1][:6])
    _forget_minutes(db, now)
    return len(rows)


def _add(db: Database, sql: str, numbers: Mapping[Row, int]) -> None:
    rows: list[tuple[Any, ...]] = [(*key, number) for key, number in numbers.items() if number]
    if rows:
        db.many(sql, rows)


def _forget_minutes(db: Database, now: Instant) -> None:
    """Remove old minutes, at least as many as a fold can add."""
    until = now - micros(RATE_SECONDS)
    (oldest,) = db.one(SQL["oldest_minute"]) or (None,)
    if oldest is not None and oldest < until:
        db.run(SQL["forget_minutes"], (until, 4 * FOLD_MAX))
