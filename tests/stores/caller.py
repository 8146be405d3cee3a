"""What tests of the caller's own transaction share: calls of a store that is not open."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw

from holdfast.records import NewEvent
from holdfast.stores.sqlite import SqliteStore
from tests.stores.files import live


def prepared(path):
    """A file that is up to date and open nowhere, with a table of the user's own."""
    live(path, lambda store: store.now())
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table orders (name text)")
    return path


def begun(path):
    """A connection of apsw's with a transaction open."""
    connection = apsw.Connection(str(path))
    connection.execute("begin")
    return connection


def start(path, connection, *runs):
    """By a store that is not open, as in a process that only starts."""
    return asyncio.run(SqliteStore(str(path)).start(runs, connection))


def emit(path, connection, **fields):
    event = NewEvent(**{"topic": "paid", "id": "e1"} | fields)
    return asyncio.run(SqliteStore(str(path)).emit(event, connection))


def rows(connection, sql):
    return connection.execute(sql).fetchall()


def end(connection, how):
    """As the user does it."""
    connection.execute(how)
