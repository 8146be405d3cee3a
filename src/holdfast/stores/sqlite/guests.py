"""A verb in the caller's own transaction: his connection, on his thread, with his commit.

What the store writes there stands in a savepoint, so that a call that fails leaves no half behind. The
connection is never closed, committed or rolled back here.
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

from . import migrate, strangers
from .database import Database, Row
from .errors import translated
from .sql import statements

_SQL = statements("guests")
_NAMED = re.compile(r":(\w+)")
_LEGACY = -1  # of sqlite3: it begins a transaction by itself

T = TypeVar("T")


class ApswGuest(Database):
    """A connection of apsw's. What its owner has set to look at statements and rows is not asked here."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        cursor = apsw.Cursor(connection)
        cursor.row_trace, cursor.exec_trace = _as_it_is, _let_pass
        self.run, self._many, self.changes = cursor.execute, cursor.executemany, connection.changes


class SqliteGuest(Database):
    """A connection of the standard library's, to be asked as if it were apsw's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = sqlite3.Cursor(connection)  # connection.cursor() would bring its rows in another shape

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
    """The names in a statement, in the order in which values are given for them."""
    return tuple(dict.fromkeys(_NAMED.findall(sql)))


def within(connection: Any, path: str, now: Instant, work: Callable[[Database, Instant], T]) -> T:
    """What a verb answers inside the caller's transaction."""
    if isinstance(connection, sqlite3.Connection):
        if not strangers.ONE_LIBRARY:
            strangers.refuse_beside_open(path)
    elif not isinstance(connection, apsw.Connection):
        raise UsageError(
            f"connection={_kind(connection)}: give the driver's own, apsw.Connection or sqlite3.Connection"
        )
    with _clear(path), _plain_text(connection):
        guest = ApswGuest(connection) if isinstance(connection, apsw.Connection) else SqliteGuest(connection)
        _check_place(guest, path)
        _begin(connection)
        if not strangers.ONE_LIBRARY and isinstance(connection, sqlite3.Connection):
            strangers.note(path)
        guest.run(_SQL["savepoint"])
        try:
            guest.run(_SQL["lock"])
            _check_schema(guest, path)
            answer = work(guest, now)
        except BaseException:
            with suppress(apsw.Error, sqlite3.Error):  # SQLite may have given the whole transaction up
                guest.run(_SQL["undo"])
                guest.run(_SQL["release"])
            raise
        guest.run(_SQL["release"])
        return answer


def _kind(connection: Any) -> str:
    return f"<{type(connection).__module__}.{type(connection).__qualname__}>"


@contextmanager
def _plain_text(connection: Any) -> Iterator[None]:
    """Text as text, whatever its owner has it turned into; that is set for a whole connection only."""
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    before, connection.text_factory = connection.text_factory, str
    try:
        yield
    finally:
        connection.text_factory = before


def _check_place(guest: Database, path: str) -> None:
    files = {name: file for _, name, file in guest.all(_SQL["place"])}
    if strangers.is_same(files["main"], path):
        if os.path.realpath(files["main"]) != os.path.realpath(path):
            raise UsageError(
                f"the connection is on {files['main']}, another name of the store's file (a hard link), and "
                f"SQLite keeps one log for each name: open the connection on {path}"
            )
        return
    if any(strangers.is_same(file, path) for file in files.values()):
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
    # At once for writing, as that is what follows: one that only reads may be overtaken before it writes.
    mode = "exclusive" if str(connection.isolation_level).upper() == "EXCLUSIVE" else "immediate"
    sqlite3.Cursor(connection).execute(f"begin {mode}")


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    return connection.isolation_level is not None and getattr(connection, "autocommit", _LEGACY) == _LEGACY


def _check_schema(guest: Database, path: str) -> None:
    rows = guest.all(_SQL["meta"])
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
def _clear(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"the connection cannot be used here: {error}") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        raise _told(error if code is None else apsw.exception_for(code), path, str(error)) from error
    except (apsw.ConnectionClosedError, apsw.ThreadingViolationError) as error:
        raise UsageError(f"the connection cannot be used here: {error}") from error
    except apsw.Error as error:
        raise _told(error, path, str(error)) from error


def _told(error: Exception, path: str, said: str) -> StoreError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Unavailable(
            f"{path}: your transaction cannot write now: another one does, or has since yours began to read; "
            "roll back, and begin again with 'begin immediate'"
        )
    if "no such table" in said:
        return SchemaMismatch(f"{path}: it has no tables of Holdfast's yet: run `holdfast migrate` once")
    told = translated(error, path)
    return told if type(told) is not StoreError else StoreError(f"{path}: {said}")
