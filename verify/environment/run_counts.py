"""Counts of runs by type and status, read from the tables: lists of the store would load all values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from .stores import is_postgres

Counting = Callable[[str], Awaitable[dict[str, int]]]
ASKED = "select status, count(*) from {} where type = {} group by status"


@contextmanager
def counting(url: str) -> Iterator[Counting]:
    """Return a function that counts the runs of a type by status, on its own connection."""
    connection, sql = _connected(url)
    with closing(connection):

        def count(type_: str) -> dict[str, int]:
            return dict(connection.execute(sql, (type_,)).fetchall())

        async def counted(type_: str) -> dict[str, int]:
            return await asyncio.to_thread(count, type_)

        yield counted


def _connected(url: str) -> tuple[Any, str]:
    if is_postgres(url):
        import psycopg

        from holdfast.stores.postgres.address import parsed

        postgres = psycopg.connect(parsed(url).dsn, autocommit=True)
        return postgres, ASKED.format("workflow.workflow_run", "%s")
    import apsw

    sqlite = apsw.Connection(url.removeprefix("sqlite:///"))
    sqlite.set_busy_timeout(5000)
    return sqlite, ASKED.format("workflow_run", "?")


def some_ids(url: str, prefix: str, most: int = 50) -> list[str]:
    """Return ids of runs whose types have this prefix, newest first."""
    connection, _ = _connected(url)
    table, mark = ("workflow.workflow_run", "%s") if is_postgres(url) else ("workflow_run", "?")
    asked = f"select id from {table} where type like {mark} order by id desc limit {most}"  # noqa: S608 - our words
    with closing(connection):
        return [str(id_) for (id_,) in connection.execute(asked, (f"{prefix}%",)).fetchall()]
