"""What tests of transactions share: a table of accounts beside the engine's."""

from __future__ import annotations

import apsw


def with_accounts(path):
    """A file with a table of the user's own beside the engine's."""
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


async def noted(value=None):
    return value
