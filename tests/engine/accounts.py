"""A table of bank accounts beside the engine's own tables, for tests of transactions."""

from __future__ import annotations

import apsw


def with_accounts(path):
    """Create a SQLite file with a user's own table."""
    connection = apsw.Connection(str(path))
    connection.execute("create table account (name text unique, amount integer)")
    connection.close()
    return path


def amounts(path):
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    try:
        return dict(connection.execute("select name, amount from account").fetchall())
    finally:
        connection.close()


def put(connection, name, amount=1):
    sql = (
        "insert into account values (?, ?) "
        "on conflict (name) do update set amount = amount + excluded.amount returning amount"
    )
    return connection.execute(sql, (name, amount)).fetchall()[0][0]


async def echo(value=None):
    return value
