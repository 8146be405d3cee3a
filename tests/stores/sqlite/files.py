"""Helpers of the tests of the SQLite store: records, open stores, and the file as other programs see it."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import asynccontextmanager, closing

import apsw

from holdfast.records import Ask, NewRun
from holdfast.stores.sqlite import SqliteStore
from holdfast.world import uuid7

TYPE = "shop.order.v1"


def new_run(**fields):
    return NewRun(**{"id": uuid7(time.time_ns(), secrets.randbits(62)), "type": TYPE} | fields)


def ask(limit=10, **fields):
    return Ask(**{"worker": "w", "types": (TYPE,), "limit": limit} | fields)


@asynccontextmanager
async def opened(path, **options):
    store = SqliteStore(str(path), **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def with_store(path, story):
    """Run `story` with an open store and its writer thread."""

    async def main():
        async with opened(path) as store:
            return await story(store)

    return asyncio.run(main())


def raw_connection(path):
    """Open the file like another program, with a busy timeout, which apsw does not set by itself."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    return closing(connection)


async def until(condition, seconds=30.0):
    """Wait for another thread or process, by polling."""
    begun = time.perf_counter()
    while not condition():
        assert time.perf_counter() - begun < seconds
        await asyncio.sleep(0.001)
