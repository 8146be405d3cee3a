"""The guard: limits what a user's function may do on the connection that it is given, and for how long.

The writes of the function share a commit with the engine. So it may not end that commit, and may not change
the engine's tables. A violation is detected, and then the whole transaction is rolled back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Self

import apsw

from holdfast.errors import StepTimeout, UsageError

# The file inside whose transaction the current code runs. Another thread sees it too, if it copied the
# context.
INSIDE: ContextVar[str | None] = ContextVar("holdfast_inside", default=None)

OURS = "workflow_"
SAVEPOINT = "holdfast_work"
_STEPS = 5_000  # steps of SQLite's virtual machine between two looks at the clock: about 0.1 ms
_PATIENCE_SECONDS, _NAP_SECONDS = 1.0, 0.001  # for a thread that the function left behind

_LOOKING = frozenset(
    {apsw.SQLITE_READ, apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE, apsw.SQLITE_ANALYZE}
)
# Pragmas that are allowed. All others act beyond the transaction: on the file or on the connection.
_PRAGMAS = frozenset(
    [
        "application_id",
        "collation_list",
        "compile_options",
        "data_version",
        "database_list",
        "defer_foreign_keys",
        "encoding",
        "foreign_key_check",
        "foreign_key_list",
        "freelist_count",
        "function_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "module_list",
        "page_count",
        "page_size",
        "pragma_list",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
        "user_version",
    ]
)

# May be read, not set.
_SETTINGS = frozenset({"foreign_keys", "journal_mode", "schema_version", "synchronous"})


def refuse_inside(path: str) -> None:
    """Refuse a call of a store from inside a transaction on its file: it would wait for itself."""
    inside = INSIDE.get()
    if inside is not None and inside == os.path.realpath(path):
        raise UsageError(
            f"{path}: the engine is called from inside the function of a transaction, for whose end it would "
            "wait: call it from the workflow's body, or from a step"
        )


def insist(connection: apsw.Connection, call: Callable[[], None]) -> None:
    """Make a call on a connection that a thread of the user's function may still use. That thread is
    interrupted."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call()
        except apsw.ThreadingViolationError:
            if time.monotonic() > end:
                raise
        connection.interrupt()
        time.sleep(_NAP_SECONDS)


class Guard:
    """A context manager around one call of a user's function, inside an open transaction."""

    def __init__(self, connection: apsw.Connection, limit_seconds: float) -> None:
        self._connection, self._limit = connection, limit_seconds
        self._end = time.monotonic() + limit_seconds
        self._refused = ""
        self._rolled_back = False

    def __enter__(self) -> Self:
        connection = self._connection
        # Set for each call: SQLite then checks statements again that it has prepared before.
        connection.authorizer = self._allow
        connection.set_commit_hook(self._refuse_commit, id=self)
        connection.set_rollback_hook(self._note_rollback, id=self)
        connection.set_progress_handler(self._is_over, _STEPS, id=self)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            open_still = self._connection.in_transaction
            self._let_go()
        except apsw.ConnectionClosedError:
            self._refused, open_still = self._refused or "closes its connection", False
        except apsw.ThreadingViolationError:
            self._refused, open_still = self._refused or "leaves a thread that uses its connection", False
            with suppress(apsw.Error):
                insist(self._connection, self._let_go)
        if isinstance(error, apsw.InterruptError) and self._is_over():
            raise self._too_long() from None
        if error is None:
            self._check(open_still=open_still)

    def _let_go(self) -> None:
        connection = self._connection
        connection.authorizer = None
        # Else traces that the function set would see the engine's rows.
        connection.row_trace = connection.exec_trace = None
        connection.set_commit_hook(None, id=self)
        connection.set_rollback_hook(None, id=self)
        connection.set_progress_handler(None, id=self)

    def _check(self, *, open_still: bool) -> None:
        if self._refused:
            raise _wrong(self._refused)
        if self._is_over():
            raise self._too_long()
        if self._rolled_back or not open_still:
            raise _wrong("rolls its transaction back (as `insert or rollback` does)")

    def _is_over(self) -> bool:
        return time.monotonic() > self._end

    def _too_long(self) -> StepTimeout:
        return StepTimeout(
            f"the function of a transaction took longer than {self._limit:g} s, and nobody else can write "
            "meanwhile: do what takes long in a step before it, or give `limit=`"
        )

    def _refuse_commit(self) -> bool:
        # Reached when SQLite would commit a statement by itself, after the transaction is gone.
        raise self._refuse("goes on writing after its transaction was rolled back")

    def _note_rollback(self) -> None:
        self._rolled_back = True

    def _refuse(self, what: str) -> UsageError:
        self._refused = self._refused or what
        return _wrong(what)

    def _allow(self, action: int, *names: str | None) -> int:
        if action in _LOOKING:
            return apsw.SQLITE_OK
        first, second = names[:2]
        if action == apsw.SQLITE_TRANSACTION:
            raise self._refuse(f"calls {str(first).lower()}")
        if action in {apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH}:
            raise self._refuse("attaches or detaches a database")
        if action == apsw.SQLITE_PRAGMA and not _is_harmless(str(first).lower(), second):
            raise self._refuse(f"sets pragma {first}")
        if action == apsw.SQLITE_SAVEPOINT and str(second).lower() == SAVEPOINT:
            raise self._refuse(f"uses the savepoint {second}")
        if action == apsw.SQLITE_ALTER_TABLE and first == "temp":
            # SQLite does not tell the new name. It could be the name of an engine table, and would hide that
            # table.
            raise self._refuse("alters a temporary table")
        if any(_is_ours(name) for name in (first, second)):
            raise self._refuse(f"writes to {first if _is_ours(first) else second}, a table of the engine's")
        return apsw.SQLITE_OK


def _is_harmless(pragma: str, value: str | None) -> bool:
    return pragma in _PRAGMAS or (pragma in _SETTINGS and value is None)


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and name.lower().startswith((OURS, f"idx_{OURS}"))


def _wrong(what: str) -> UsageError:
    return UsageError(
        f"the function of a transaction {what}: it may read and write tables of its own, and use savepoints; "
        "begin and commit are the engine's"
    )
