"""What runs owe since their last commit: news of their end, cancels of children, a look at their waits.

It was recorded with that commit, is found by an index that holds nobody else, and is carried out here, a
slice a commit, by whoever comes first.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.machine import children
from holdfast.records import Instant

from .database import Database
from .held import RunRow
from .sql import statements
from .view import SqliteView

_SQL = statements("children")
SMALL_BYTES = 4096  # of a result that is read with its run


def owing(db: Database) -> bool:
    """Whether anybody owes anything; a look, no write."""
    return db.one(_SQL["any_owing"]) is not None


def carry_out(db: Database, now: Instant, limit: int) -> int:
    """One slice of it: how many parents were woken."""
    view, found = SqliteView(db, now), db.all(_SQL["owing"], (SMALL_BYTES, limit))
    view.prefetch(dict.fromkeys(run for run, *_ in found))
    told = [(parent, step) for _, parent, step, *_ in found if parent is not None and step is not None]
    view.prefetch(dict.fromkeys(parent for parent, _ in told))
    view.prefetch_steps(told)
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
    """Tell the parent that waits for it that the run is gone."""
    view, (parent, step) = SqliteView(db, now), waiting
    children.tell_parent(view, UUID(parent), step, UUID(run))
    view.save()
