"""Work that a run's last commit left to do: tell the parent, cancel children, look at the waits of the run.

The commit recorded this work in the column `owes`. An index lists only runs that owe something. Any process
may carry the work out, in slices of one commit each.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.machine import children
from holdfast.records import Instant
from holdfast.stores.sqlite.connection.database import Database
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view.machine_rows import RunRow
from holdfast.stores.sqlite.view.view import SqliteView

_SQL = statements("chores/children")
SMALL_BYTES = 4096  # a result up to this size is read together with its run


def owing(db: Database) -> bool:
    """Return True when any run owes something. It writes nothing."""
    return db.one(_SQL["any_owing"]) is not None


def carry_out(db: Database, now: Instant, limit: int) -> int:
    """Carry out one slice. Return how many parents were woken."""
    view, found = SqliteView(db, now), db.all(_SQL["owing"], (SMALL_BYTES, limit))
    view.prefetch(dict.fromkeys(run for run, *_ in found))
    parents = [(parent, step) for _, parent, step, *_ in found if parent is not None and step is not None]
    view.prefetch(dict.fromkeys(parent for parent, _ in parents))
    view.prefetch_steps(parents)
    runs = list[RunRow]()
    for name, _, _, result, is_large in found:
        if (run := view.run_of(name)) is not None:
            runs.append(run)
            if not is_large:
                view.know_result(run, result)
    woken = children.carry_out(view, runs, limit)
    view.save()
    return woken


def tell_gone(db: Database, now: Instant, run: str, waiting: tuple[str, str]) -> None:
    """Tell the parent that waits for this run that the run is gone."""
    view, (parent, step) = SqliteView(db, now), waiting
    children.tell_parent(view, UUID(parent), step, UUID(run))
    view.save()
