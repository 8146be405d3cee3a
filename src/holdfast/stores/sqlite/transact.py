"""transact: a checkpoint and what a function of the user's has written, in one commit.

The function has a connection of its own, fresh for each call: whatever it leaves behind there (cursors,
temporary tables, hooks) goes with it, and the engine's own connection is never in its hands.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import Context
from typing import Any

from holdfast.errors import UsageError
from holdfast.lifecycle import SETTLED
from holdfast.machine.commit import not_held, refuse_foreign, refused, write
from holdfast.records import Instant, Item, Verdict
from holdfast.records.moves import Checkpoint
from holdfast.stores.items import check_batch

from .database import Database
from .errors import MACHINE
from .guard import INSIDE, SAVEPOINT, Guard
from .view import SqliteView
from .writer import RolledBack


class Transaction:
    """A job for the writer: alone in its transaction, and called once."""

    def __init__(
        self, item: Item, work: Callable[[Any], Item], limit_seconds: float, clock: Callable[[], Instant]
    ) -> None:
        if not isinstance(item.move, Checkpoint):
            raise UsageError(f"a transaction is a checkpoint, no {item.move.verb}")
        self._item, self._work, self._limit, self._clock = item, work, limit_seconds, clock

    def inside(self, path: str, context: Context) -> Transaction:
        """As a part of the caller's context, in which calls of this store are refused."""
        context.run(INSIDE.set, os.path.realpath(path))
        work = self._work
        self._work = lambda connection: context.run(work, connection)
        return self

    def __call__(self, db: Database, now: Instant) -> Verdict:
        view = SqliteView(db, now)
        refusal = refused(view, view.run(self._item.run), self._item)
        if refusal is not None:
            return refusal
        db.run(f"savepoint {SAVEPOINT}")
        item = self._called(db)
        # Its time may have passed meanwhile; nobody else can have written.
        view = SqliteView(db, self._clock())
        run = view.run(item.run)
        lost = not_held(view, run, item)
        if lost is not None or run is None:
            raise RolledBack(lost)
        try:
            refuse_foreign(item, run.tenant)
        except UsageError as error:
            raise RolledBack(error) from None
        stands = view.step(run, item.steps[-1].key)
        if stands is not None and stands.status in SETTLED:
            db.run(f"rollback to {SAVEPOINT}")  # what was recorded is never done again: it was done
        verdict = write(view, run, item, marked=True)
        view.save()
        return verdict

    def _called(self, db: Database) -> Item:
        try:
            with Guard(db.connection, self._limit):
                item = self._work(db.connection)
            check_batch("item", (item,))
        except MACHINE:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must not end the writer's thread
            raise RolledBack(error) from None
        return item
