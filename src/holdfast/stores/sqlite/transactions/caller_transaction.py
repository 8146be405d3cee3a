"""The caller's transaction: a start or emit on the caller's connection and thread, committed by the caller.

The writes of the store are inside a savepoint, so a call that fails leaves nothing half written. This module
never closes, commits or rolls back the connection.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import apsw

from holdfast.errors import SchemaMismatch, StoreError, Unavailable, UsageError
from holdfast.records import Instant
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.connection import other_sqlite
from holdfast.stores.sqlite.connection.database import Database, Row
from holdfast.stores.sqlite.connection.errors import translated
from holdfast.stores.sqlite.sql import statements

_SQL = statements("transactions/caller_transaction")
_NAMED = re.compile(r":(\w+)")
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL: sqlite3 begins transactions by itself

T = TypeVar("T")


class ApswCaller(Database):
    """The caller's apsw connection, without the row and statement traces that the caller has set."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        cursor = apsw.Cursor(connection)
        cursor.row_trace, cursor.exec_trace = _as_it_is, _let_pass
        self.run, self._many, self.changes = cursor.execute, cursor.executemany, connection.changes


class Sqlite3Caller(Database):
    """The caller's connection of the standard library's sqlite3, with the interface of `Database`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = sqlite3.Cursor(connection)  # connection.cursor() may return rows of another type

    def run(self, sql: str, args: Any = ()) -> sqlite3.Cursor:  # type: ignore[override]  # it has fetchall, too
        return self._cursor.execute(sql, dict(zip(_names(sql), args, strict=True)))

    def many(self, sql: str, rows: Sequence[Row]) -> None:
        for row in rows:
            self.run(sql, row)

    def changes(self) -> int:
        return self._cursor.rowcount


def _as_it_is(_cursor: apsw.Cursor, row: Row) -> Row:
    return row


def _let_pass(_cursor: apsw.Cursor, _sql: str, _args: Any) -> bool:
    return True


@lru_cache(maxsize=100)
def _names(sql: str) -> tuple[str, ...]:
    """Return the parameter names of a statement, in the order of its values."""
    return tuple(dict.fromkeys(_NAMED.findall(sql)))


def within(connection: Any, path: str, now: Instant, work: Callable[[Database, Instant], T]) -> T:
    """Run a verb inside the caller's transaction and return its answer."""
    if isinstance(connection, sqlite3.Connection):
        if not other_sqlite.ONE_LIBRARY:
            other_sqlite.refuse_beside_open(path)
    elif not isinstance(connection, apsw.Connection):
        raise UsageError(
            f"connection={_kind(connection)}: give the driver's own, apsw.Connection or sqlite3.Connection"
        )
    with _translated_errors(path), _text_as_str(connection):
        is_apsw = isinstance(connection, apsw.Connection)
        caller = ApswCaller(connection) if is_apsw else Sqlite3Caller(connection)
        _check_place(caller, path)
        _begin(connection)
        if not other_sqlite.ONE_LIBRARY and isinstance(connection, sqlite3.Connection):
            other_sqlite.note(path)
        caller.run(_SQL["savepoint"])
        try:
            caller.run(_SQL["lock"])
            _check_schema(caller, path)
            answer = work(caller, now)
        except BaseException:
            with suppress(apsw.Error, sqlite3.Error):  # SQLite may have rolled back the whole transaction
                caller.run(_SQL["undo"])
                caller.run(_SQL["release"])
            raise
        caller.run(_SQL["release"])
        return answer


def _kind(connection: Any) -> str:
    return f"<{type(connection).__module__}.{type(connection).__qualname__}>"


@contextmanager
def _text_as_str(connection: Any) -> Iterator[None]:
    """Read text as str, whatever text_factory the caller has set. It can only be set for a whole
    connection."""
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    before, connection.text_factory = connection.text_factory, str
    try:
        yield
    finally:
        connection.text_factory = before


def _check_place(caller: Database, path: str) -> None:
    files = {name: file for _, name, file in caller.all(_SQL["place"])}
    if other_sqlite.is_same(files["main"], path):
        if os.path.realpath(files["main"]) != os.path.realpath(path):
            raise UsageError(
                f"the connection is on {files['main']}, another name of the store's file (a hard link), and "
                f"SQLite keeps one log for each name: open the connection on {path}"
            )
        return
    if any(other_sqlite.is_same(file, path) for file in files.values()):
        raise UsageError(
            f"{path} is only attached to this connection, and SQLite commits two files one after the other: "
            "open the connection on it"
        )
    raise UsageError(f"the connection is on {files['main'] or 'memory'}, and the store's file is {path}")


def _begin(connection: apsw.Connection | sqlite3.Connection) -> None:
    if connection.in_transaction:
        return
    if not isinstance(connection, sqlite3.Connection) or not _begins_by_itself(connection):
        raise UsageError(
            "the connection has no transaction open: begin one first, connection.execute('begin')"
        )
    # Begin for writing: a transaction that begins with a read may fail to write if another one writes first.
    mode = "exclusive" if str(connection.isolation_level).upper() == "EXCLUSIVE" else "immediate"
    sqlite3.Cursor(connection).execute(f"begin {mode}")


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    return connection.isolation_level is not None and getattr(connection, "autocommit", _LEGACY) == _LEGACY


def _check_schema(caller: Database, path: str) -> None:
    rows = caller.all(_SQL["meta"])
    if any(type(value) is not str for row in rows for value in row):
        raise UsageError(
            "the connection turns text into something else (detect_types, with a converter for TEXT): "
            "give one without it"
        )
    meta: dict[str, str] = dict(rows)
    if meta.get("major") != str(migrate.MAJOR):
        raise SchemaMismatch(
            f"{path}: its schema is of major version {meta.get('major')}, not {migrate.MAJOR}"
        )
    if int(meta["minor"]) < len(migrate.minors()):
        raise SchemaMismatch(f"{path}: its schema is older than this library: run `holdfast migrate` once")


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"the connection cannot be used here: {error}") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        raise _store_error(error if code is None else apsw.exception_for(code), path, str(error)) from error
    except (apsw.ConnectionClosedError, apsw.ThreadingViolationError) as error:
        raise UsageError(f"the connection cannot be used here: {error}") from error
    except apsw.Error as error:
        raise _store_error(error, path, str(error)) from error


def _store_error(error: Exception, path: str, message: str) -> StoreError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Unavailable(
            f"{path}: your transaction cannot write now: another one does, or has since yours began to read; "
            "roll back, and begin again with 'begin immediate'"
        )
    if "no such table" in message:
        return SchemaMismatch(f"{path}: it has no tables of Holdfast's yet: run `holdfast migrate` once")
    known = translated(error, path)
    return known if type(known) is not StoreError else StoreError(f"{path}: {message}")
