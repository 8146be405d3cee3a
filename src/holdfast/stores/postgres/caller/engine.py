"""Transactions on the user's own engine, pool or connect function.

A block commits when it ends normally, and rolls back when anything is raised in it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from holdfast.errors import UsageError

_KNOWN = (
    "give an Engine, AsyncEngine or sessionmaker of SQLAlchemy, a pool of psycopg's or asyncpg's, or a "
    "function that connects, as in partial(psycopg.connect, url)"
)

SyncBlock = AbstractContextManager[Any]
AsyncBlock = AbstractAsyncContextManager[Any]


def transaction_on(on: Any) -> SyncBlock | AsyncBlock:
    """Return a block that gives a connection or session in a transaction. Nothing is opened before the block
    is entered.
    """
    if _is(on, "sqlalchemy.engine", "Engine"):
        return _begun(on.connect)
    if _is(on, "sqlalchemy.orm", "sessionmaker"):
        return _begun(on)
    if _is(on, "sqlalchemy.ext.asyncio", "AsyncEngine"):
        return _begun_async(on.connect)
    if _is(on, "sqlalchemy.ext.asyncio", "async_sessionmaker"):
        return _begun_async(on)
    if _is(on, "asyncpg.pool", "Pool"):
        return _in_transaction_async(on.acquire())
    if callable(getattr(on, "connection", None)) and not isinstance(on, type):
        block = on.connection()
        return _in_transaction_async(block) if hasattr(block, "__aenter__") else _in_transaction(block)
    if inspect.iscoroutinefunction(on):
        return _in_transaction_async(_connected_async(on))
    if callable(on):
        return _in_transaction(_connected(on))
    raise UsageError(f"on={on!r}: {_KNOWN}")


def _is(value: Any, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


@contextmanager
def _begun(opened: Any) -> Iterator[Any]:
    with opened() as given, given.begin():
        yield given


@asynccontextmanager
async def _begun_async(opened: Any) -> AsyncIterator[Any]:
    async with opened() as given, given.begin():
        yield given


@contextmanager
def _in_transaction(block: Any) -> Iterator[Any]:
    with block as given, given.transaction():
        yield given


@asynccontextmanager
async def _in_transaction_async(block: Any) -> AsyncIterator[Any]:
    async with block as given, given.transaction():
        yield given


@contextmanager
def _connected(connect: Any) -> Iterator[Any]:
    given = connect()
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        raise UsageError(f"on={connect!r} is to be awaited, and does not say so: give an `async def`")
    try:
        if not callable(getattr(given, "transaction", None)):
            raise UsageError(f"on={connect!r} has given {given!r}: {_KNOWN}")
        yield given
    finally:
        if callable(getattr(given, "close", None)):
            given.close()


@asynccontextmanager
async def _connected_async(connect: Any) -> AsyncIterator[Any]:
    given = await connect()
    try:
        if not callable(getattr(given, "transaction", None)):
            raise UsageError(f"on={connect!r} has given {given!r}: {_KNOWN}")
        yield given
    finally:
        if callable(getattr(given, "close", None)):
            await given.close()
