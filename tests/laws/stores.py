"""The stores that the contract holds for, and functions that make new ones."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.stores.memory import MemoryStore


def memory(clock, folder):
    return MemoryStore(clock=clock)


def sqlite_inline(clock, folder):
    from holdfast.stores.sqlite import SqliteStore

    return SqliteStore(":memory:", clock=clock, inline=True)


def sqlite(clock, folder):
    """Return a store on a copy of an empty one: to make all tables takes 4 ms each time."""
    from holdfast.stores.sqlite import SqliteStore

    file = folder / "holdfast.db"
    file.write_bytes(_empty())
    return SqliteStore(str(file), clock=clock)


@cache
def _empty():
    from holdfast.stores.sqlite import SqliteStore

    with TemporaryDirectory() as folder:
        file = Path(folder) / "holdfast.db"
        store = SqliteStore(str(file))
        asyncio.run(_opened_once(store))
        return file.read_bytes()


async def _opened_once(store):
    await store.open()
    await store.close()


MAKERS = {"memory": memory, "sqlite inline": sqlite_inline, "sqlite": sqlite}
