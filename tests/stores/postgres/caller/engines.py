"""The engines that give a transaction its connection, each with a function that writes one row."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

from holdfast.contract import OwnEngine
from tests.stores.postgres.caller.callers import url
from tests.stores.postgres.sessions.opened import until


class Own:
    """The store's own connection, of asyncpg."""

    is_sync = False

    async def open(self, _dsn: str) -> Any:
        return None

    async def close(self) -> None:
        pass

    def run(self, given: Any, sql: str) -> Any:
        """Run a statement; return an awaitable unless the engine is sync."""
        return given.execute(sql)


class AsyncpgPool(Own):
    async def open(self, dsn: str) -> Any:
        self.on = await asyncpg.create_pool(dsn, min_size=1, max_size=2)
        return self.on

    async def close(self) -> None:
        await self.on.close()


class AsyncpgConnect(Own):
    async def open(self, dsn: str) -> Any:
        return partial(asyncpg.connect, dsn)


class AsyncPsycopgConnect(Own):
    async def open(self, dsn: str) -> Any:
        return partial(psycopg.AsyncConnection.connect, dsn)


class AsyncPsycopgPool(Own):
    """A pool with the interface of psycopg's own."""

    async def open(self, dsn: str) -> Any:
        self._dsn = dsn
        return self

    @asynccontextmanager
    async def connection(self) -> Any:
        async with await psycopg.AsyncConnection.connect(self._dsn) as given:
            yield given


class PsycopgConnect(Own):
    is_sync = True

    async def open(self, dsn: str) -> Any:
        return partial(psycopg.connect, dsn)


class PsycopgPool(PsycopgConnect):
    async def open(self, dsn: str) -> Any:
        self._dsn = dsn
        return self

    @contextmanager
    def connection(self) -> Any:
        with psycopg.connect(self._dsn, autocommit=True) as given:
            yield given


class Engine(Own):
    is_sync = True

    async def open(self, dsn: str) -> Any:
        self.engine = sa.create_engine(url(dsn, "psycopg"))
        return self.engine

    async def close(self) -> None:
        # A function that was given up may still have a connection, which would go back to the pool after it
        # was closed.
        await until(lambda: not self.engine.pool.checkedout(), 10)
        self.engine.dispose()

    def run(self, given: Any, sql: str) -> Any:
        return given.execute(sa.text(sql))


class Sessions(Engine):
    async def open(self, dsn: str) -> Any:
        return orm.sessionmaker(await super().open(dsn))


class AsyncEngine(Engine):
    is_sync = False
    driver = "psycopg"

    async def open(self, dsn: str) -> Any:
        self.engine = sa_async.create_async_engine(url(dsn, self.driver))
        return self.engine

    async def close(self) -> None:
        await self.engine.dispose()


class AsyncEngineAsyncpg(AsyncEngine):
    driver = "asyncpg"


class AsyncSessions(AsyncEngineAsyncpg):
    async def open(self, dsn: str) -> Any:
        return sa_async.async_sessionmaker(await super().open(dsn))


KINDS = {
    kind.__name__: kind
    for kind in (
        Own, AsyncpgPool, AsyncpgConnect, AsyncPsycopgConnect, AsyncPsycopgPool, PsycopgConnect, PsycopgPool,
        Engine, Sessions, AsyncEngine, AsyncEngineAsyncpg, AsyncSessions,
    )
}  # fmt: skip


def own(on: Any) -> OwnEngine | None:
    return None if on is None else OwnEngine(on, asyncio.to_thread)
