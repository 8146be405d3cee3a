"""transact: a checkpoint and the writes of a user's function, in one commit.

The function gets a new connection for each call, never the connection of the engine. Everything that it
leaves on the connection (cursors, temporary tables, hooks) disappears with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import Context
from typing import Any

from holdfast.errors import UsageError
from holdfast.lifecycle import SETTLED
from holdfast.machine.commit import not_held, refuse_foreign, refused, with_left, write
from holdfast.records import Instant, Item, Verdict
from holdfast.records.moves import Checkpoint
from holdfast.stores.items import check_batch
from holdfast.stores.sqlite.connection.database import Database
from holdfast.stores.sqlite.connection.errors import MACHINE
from holdfast.stores.sqlite.connection.writer import RolledBack
from holdfast.stores.sqlite.view.view import SqliteView

from .guard import INSIDE, SAVEPOINT, Guard


class Transaction:
    """A job for the writer. It is alone in its transaction and runs once."""

    def __init__(
        self, item: Item, work: Callable[[Any], Item], limit_seconds: float, clock: Callable[[], Instant]
    ) -> None:
        if not isinstance(item.move, Checkpoint):
            raise UsageError(f"a transaction is a checkpoint, no {item.move.verb}")
        self._item, self._work, self._limit, self._clock = item, work, limit_seconds, clock

    def inside(self, path: str, context: Context) -> Transaction:
        """Run the user's function in the caller's context, and refuse calls of this store from inside it."""
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
        # The lease may have expired during the function. No one else can have written meanwhile.
        view = SqliteView(db, self._clock())
        run = view.run(item.run)
        lost = not_held(view, run, item)
        if lost is not None or run is None:
            raise RolledBack(lost)
        try:
            refuse_foreign(item, run.tenant)
        except UsageError as error:
            raise RolledBack(error) from None
        recorded = view.step(run, item.steps[-1].key)
        if recorded is not None and recorded.status in SETTLED:
            # The step is recorded: its writes must not be done a second time.
            db.run(f"rollback to {SAVEPOINT}")
        verdict = write(view, run, item, marked=True)
        verdict = with_left(view, run, item, verdict)
        view.save()
        return verdict

    def _called(self, db: Database) -> Item:
        try:
            with Guard(db.connection, self._limit):
                item = self._work(db.connection)
            check_batch("item", (item,))
        except MACHINE:
            raise
        except BaseException as error:  # noqa: BLE001 - no error may end the writer thread
            raise RolledBack(error) from None
        return item
