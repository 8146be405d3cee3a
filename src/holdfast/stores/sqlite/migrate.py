"""Opening a file and migrating its schema: only forward, and only by additions within a major version.

An older library works with a newer minor version, because that only added things. Another major version is
refused. Many processes may open one new file at the same time: they queue at the turnstile, and the schema is
created in one immediate transaction.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from functools import partial
from pathlib import Path

import apsw

from holdfast.errors import NotADatabase, SchemaMismatch, StoreError, Unavailable
from holdfast.escaping import escaped

from .connection.database import Database
from .connection.errors import translated
from .connection.turnstile import Turnstile
from .sql import FOLDER

MAJOR = 1
BUSY_MS = 5000
MIGRATION_SECONDS = 600.0  # how long an open waits while another process migrates the file
APPLICATION_ID = 0x686F6C64  # "hold"; `file` and other tools show it
_STATEMENT_CACHE = 256
_WAL_LIMIT = 64 << 20
_NO_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_META = """
create table if not exists workflow_meta (key text primary key, value text not null) strict, without rowid
"""
_STAMP = "insert or replace into workflow_meta values ('major', ?), ('minor', ?)"


def minors() -> list[Path]:
    """Return the migrations of this major version, in order: 0001.sql is minor 1."""
    return sorted((FOLDER / "schema").glob("[0-9]*.sql"))


def _missing(minor: int) -> list[Path]:
    """Return the migrations that a file of this minor version needs. A new file gets the whole schema at
    once: whole.sql, and the files whole_*.sql that go on where it ends."""
    return minors()[minor:] if minor else sorted((FOLDER / "schema").glob("whole*.sql"))


def check_place(path: str, *, create: bool) -> None:
    """Refuse a bad path with a clear message. Create the file, readable by its owner only, or require
    that it exists."""
    if sys.platform == "win32":
        raise Unavailable("the SQLite store runs on Linux and macOS only")
    try:
        _check_place(path, create=create)
    except (OSError, ValueError) as error:  # a name that is too long, or no name at all
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unavailable(f"{escaped(path)}: {why}; name another file") from None


def _check_place(path: str, *, create: bool) -> None:
    file = Path(path)
    folder = file.absolute().parent
    if not folder.is_dir():
        raise Unavailable(f"{path}: there is no folder {folder}; create it, or name another file")
    if file.is_dir():
        raise Unavailable(f"{path}: this is a folder; name a file in it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Unavailable(
            f"{path}: the folder {folder} is read-only for this user, and more files live beside this one; "
            "give write permission on it, or name another place"
        )
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        raise Unavailable(f"{path}: the file is read-only for this user; give write permission on it")
    if not create:
        _check_store(file)
        return
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _check_store(file: Path) -> None:
    """Refuse a file that has no store with the current schema. The file is not changed."""
    if not file.exists():
        raise StoreError(f"no store at {file}: start a run first, or check --store (or HOLDFAST_STORE)")
    there, here = _looked_up(str(file)) if file.stat().st_size else 0, len(minors())
    if not there:
        raise NotADatabase(
            f"{file}: there is no store in this file; name another one by --store (or HOLDFAST_STORE), "
            "or make one in it: `holdfast migrate`"
        )
    if there < here:
        raise SchemaMismatch(
            f"{file}: its schema is of version {MAJOR}.{there}, this library's is {MAJOR}.{here}; "
            "run `holdfast migrate`, or start a worker"
        )


def _looked_up(path: str) -> int:
    """Return the minor version, through a connection that changes neither the file nor its journal mode."""
    # Not opened read-only: for a file in WAL mode that would leave two more files behind.
    try:
        db = Database(partial(apsw.Connection, path, flags=apsw.SQLITE_OPEN_READWRITE))
        try:
            db.connection.set_busy_timeout(BUSY_MS)
            db.run("pragma query_only = on")
            return version(db, path)
        finally:
            db.close()
    except apsw.Error as error:
        raise translated(error, path) from error


def connect(path: str, *, reader: bool = False) -> Database:
    """Open a connection with the settings that the store relies on."""
    return Database(partial(_connected, path, reader=reader))


def _connected(path: str, *, reader: bool) -> apsw.Connection:
    connection = apsw.Connection(path, flags=_NO_FLAGS, statementcachesize=_STATEMENT_CACHE)
    try:
        connection.set_busy_timeout(BUSY_MS)
        # Without this, SQLite plans a statement that might use a partial index again at every call, to look
        # at its parameters. That costs three times as much as running it.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for name, value in (
            ("journal_mode", "wal"),
            ("synchronous", "full"),
            ("journal_size_limit", _WAL_LIMIT),
            ("foreign_keys", "off"),
            ("trusted_schema", "off"),
            ("temp_store", "memory"),
            ("cache_size", -16_000),
            ("query_only", "on" if reader else "off"),
        ):
            connection.execute(f"pragma {name} = {value}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(db: Database, path: str) -> None:
    """Migrate the schema to this library's minor version. A newer minor version stays as it is."""
    if version(db, path) >= len(minors()):
        return
    db.run("begin immediate")
    try:
        db.run(_META)
        for file in _missing(version(db, path)):
            db.connection.execute(file.read_text(encoding="utf-8"))
        db.run(_STAMP, (str(MAJOR), str(len(minors()))))
        if db.one("pragma application_id") == (0,):
            db.run(f"pragma application_id = {APPLICATION_ID}")
        db.run("commit")
    except BaseException:
        with contextlib.suppress(apsw.Error):
            db.run("rollback")
        raise


def version(db: Database, path: str) -> int:
    """Return the minor version of the file; 0 when it is new. Another major version is refused."""
    if not db.connection.table_exists("main", "workflow_meta"):
        return 0
    meta: dict[str, str] = dict(db.all("select key, value from workflow_meta"))
    major = int(meta.get("major", MAJOR))
    if major != MAJOR:
        way_out = "upgrade holdfast" if major > MAJOR else "export its runs with the older holdfast"
        raise SchemaMismatch(
            f"{path}: its schema is of major version {major}, this is for {MAJOR}; {way_out}"
        )
    return int(meta.get("minor", 0))


def opened(path: str, *, reader: bool = False) -> Database:
    """Open a connection, with errors of the driver translated."""
    try:
        return connect(path, reader=reader)
    except apsw.Error as error:
        raise translated(error, path) from error


def _take_turn(turnstile: Turnstile, path: str) -> None:
    """Wait for the turn. While another process migrates the file, wait as long as a migration may take."""
    until = time.monotonic() + MIGRATION_SECONDS
    while True:
        try:
            return turnstile.enter()
        except Unavailable:
            if time.monotonic() >= until or not _is_behind(path):
                raise


def _is_behind(path: str) -> bool:
    try:
        return 0 < _looked_up(path) < len(minors())
    except (StoreError, apsw.Error):
        return False


def open_up_to_date(path: str, turnstile: Turnstile | None) -> Database:
    """Open the connection of the writer and migrate the file.

    One process at a time: the switch of a new file to WAL mode fails instead of waiting for another process.
    """
    if turnstile is not None:
        _take_turn(turnstile, path)
    try:
        db = opened(path)
        try:
            migrate(db, path)
        except apsw.Error as error:
            db.close()
            raise translated(error, path) from error
        except BaseException:
            db.close()
            raise
        return db
    finally:
        if turnstile is not None:
            turnstile.leave()
