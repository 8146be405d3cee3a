"""Counts of runs by type and status, read from tables or keys: lists of the store would load all values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from .stores import is_postgres, is_redis

Counting = Callable[[str], Awaitable[dict[str, int]]]
ASKED = "select status, count(*) from {} where type = {} group by status"


@contextmanager
def counting(url: str) -> Iterator[Counting]:
    """Return a function that counts the runs of a type by status, on its own connection."""
    if is_redis(url):
        with _counting_in_redis(url) as count_by_status:
            yield count_by_status
        return
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


@contextmanager
def _redis(url: str) -> Iterator[tuple[Any, Any]]:
    """Return a client of the server of a store, and the names of its keys."""
    import redis

    from holdfast.stores.redis.address import parsed
    from holdfast.stores.redis.names import Names

    address = parsed(url)
    with redis.Redis.from_url(address.url, decode_responses=True) as client:
        yield client, Names(address.prefix)


@contextmanager
def _counting_in_redis(url: str) -> Iterator[Counting]:
    """Read the kept counts: a recount at the end of an experiment compares them with the runs."""
    with _redis(url) as (client, names):

        def count(type_: str) -> dict[str, int]:
            kept = client.hgetall(names("counts"))
            fields = ((field.rpartition(":"), int(number)) for field, number in kept.items())
            return {word: number for (kind, _, word), number in fields if kind == type_ and word[0] != "+"}

        async def counted(type_: str) -> dict[str, int]:
            return await asyncio.to_thread(count, type_)

        yield counted


def some_ids(url: str, prefix: str, most: int = 50) -> list[str]:
    """Return ids of runs whose types have this prefix, newest first."""
    if is_redis(url):
        with _redis(url) as (client, names):
            types = [name for name in client.zrange(names("types"), 0, -1) if name.startswith(prefix)]
            ids = [
                id_ for name in types for id_ in client.zrange(names.of("type", name), 0, most - 1, desc=True)
            ]
        return sorted(ids, reverse=True)[:most]
    connection, _ = _connected(url)
    table, mark = ("workflow.workflow_run", "%s") if is_postgres(url) else ("workflow_run", "?")
    asked = f"select id from {table} where type like {mark} order by id desc limit {most}"  # noqa: S608 - our words
    with closing(connection):
        return [str(id_) for (id_,) in connection.execute(asked, (f"{prefix}%",)).fetchall()]
