"""The stores that the contract holds for, and functions that make new ones."""

from __future__ import annotations

from holdfast.stores.memory import MemoryStore


def memory(clock, folder):
    return MemoryStore(clock=clock)


def sqlite_inline(clock, folder):
    from holdfast.stores.sqlite import SqliteStore

    return SqliteStore(":memory:", clock=clock, inline=True)


def sqlite(clock, folder):
    from holdfast.stores.sqlite import SqliteStore

    return SqliteStore(str(folder / "holdfast.db"), clock=clock)


MAKERS = {"memory": memory, "sqlite inline": sqlite_inline, "sqlite": sqlite}
