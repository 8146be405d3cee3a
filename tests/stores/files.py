"""What the tests of the SQLite store share: a few records, and the file seen with other eyes."""

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


def live(path, story):
    """Tell a story to an open store with its writer thread."""

    async def main():
        async with opened(path) as store:
            return await story(store)

    return asyncio.run(main())


def plain(path):
    """The file as any other program sees it, one that waits its turn: apsw does not by itself."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5000)
    return closing(connection)


async def until(condition, seconds=30.0):
    """Wait for another thread or process, whose news comes by no event of ours."""
    begun = time.perf_counter()
    while not condition():
        assert time.perf_counter() - begun < seconds
        await asyncio.sleep(0.001)
