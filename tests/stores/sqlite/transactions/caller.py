"""Helpers of tests of the caller's transaction: calls of a store that is not open."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw

from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore
from tests.stores.sqlite.files import with_store


def prepared(path):
    """Create a migrated file that is not open, with a table of the user."""
    with_store(path, lambda store: store.now())
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table orders (name text)")
    return path


def begun(path):
    """Return an apsw connection with an open transaction."""
    connection = apsw.Connection(str(path))
    connection.execute("begin")
    return connection


def start(path, connection, *runs):
    """Call start of a store that is not open, as in a process that only starts runs."""
    return asyncio.run(SqliteStore(str(path)).start(runs, connection))


def emit(path, connection, **fields):
    event = NewEvent(**{"topic": "paid", "id": "e1"} | fields)
    return asyncio.run(SqliteStore(str(path)).emit(event, connection))


def rows(connection, sql):
    return connection.execute(sql).fetchall()


def end(connection, how):
    """Commit or roll back, as the user does it."""
    connection.execute(how)
