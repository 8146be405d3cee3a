"""What runs owe since their last commit: news of their end, cancels of children, a look at their waits.

It was recorded with that commit, is found by an index that holds nobody else, and is carried out here, a
slice a commit, by whoever comes first.
"""

from __future__ import annotations

from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import Status
from holdfast.records import Instant

from . import plans, waits
from .database import Database, Row, text
from .settling import Way, Whose, open_wait, to_look_at
from .sql import statements

_SQL = statements("children")
_CANCEL = statements("cancel")["cancel"]

END, CHILDREN, ORPHANS, LOOK = 1, 2, 4, 8


def owing(db: Database) -> bool:
    """Whether anybody owes anything; a look, no write."""
    return db.one(_SQL["any_owing"]) is not None


def carry_out(db: Database, now: Instant, limit: int) -> int:
    """One slice of it: how many parents were woken."""
    woken, left, copied, told = 0, limit, 0, list[str]()
    for run, owes, parent, step in db.all(_SQL["owing"], (limit,)):
        if left <= 0 or copied >= BATCH_BYTES:
            break
        if owes & END:
            settled = tell_parent(db, now, run, (parent, step))
            if settled is not None:
                woken, copied = woken + settled.woken, copied + settled.copied
            told.append(run)
            left -= 1
        if owes & (CHILDREN | ORPHANS):
            left -= _cancel_children(db, now, run, max(1, left), every=bool(owes & CHILDREN))
        if owes & LOOK:
            came, size = _look_again(db, now, run)
            woken, copied, left = woken + came, copied + size, left - max(1, came)
    if told:
        db.run(_SQL["told"], (text(told),))
    return woken


def _look_again(db: Database, now: Instant, run: str) -> tuple[int, int]:
    """One slice of a look that has stopped, whatever became of the run: what came, and bytes copied."""
    came = copied = 0
    for wait in to_look_at(db, now, run):
        if copied >= BATCH_BYTES:
            return came, copied
        settled = waits.settle(db, now, run, wait)
        if settled is not None:
            came, copied = came + settled.woken, copied + settled.copied
    db.run(_SQL["looked"], (run,))
    return came, copied


def tell_parent(
    db: Database, now: Instant, run: str, waiting: tuple[str | None, str | None]
) -> waits.Settled | None:
    """Tell the parent that the run has ended or is gone; None if nobody waits for it."""
    wait = db.one(_SQL["awaiting"], (*waiting, run))
    if wait is None or waiting[0] is None:
        return None
    seq, key, kind, topic, due_at = wait
    return waits.settle(db, now, waiting[0], open_wait(seq, key, kind, topic, due_at, run))


def _cancel_children(db: Database, now: Instant, run: str, limit: int, *, every: bool) -> int:
    """How much that was; when all of them are, they are owed no longer."""
    page = db.all(_SQL["open_children" if every else "orphans"], (run, limit))
    for child in page:
        cancel(db, now, child, f"parent {run}", children=True)
    if len(page) < limit:
        db.run(_SQL["cancelled"], (run,))
    return max(1, len(page))


def cancel(db: Database, now: Instant, row: Row, by: str, *, children: bool) -> None:
    """An open run, deleted or not. `row`: its id, kind, status and fence."""
    run, kind, status, fence = row
    way = Way(db, now, run, Whose(status, kind, fence))
    plans.end_steps(way, Status.CANCELLED, None, 0)
    db.run(_CANCEL, (now, children, run))
    way.note("cancelled", by=by)
    way.write()
