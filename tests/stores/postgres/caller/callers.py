"""Callers with their own transaction, each with another kind of connection, all with the same methods."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async


def url(dsn: str, driver: str) -> sa.URL:
    return sa.make_url(dsn).set(drivername=f"postgresql+{driver}")


class Caller:
    """A caller. `given` is passed to the store. The transaction begins by itself, unless `begin` says how."""

    is_sync = True
    given: Any

    async def open(self, dsn: str) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        pass

    async def run(self, sql: str) -> None:
        raise NotImplementedError

    async def commit(self) -> None:
        self.given.commit()

    async def roll_back(self) -> None:
        self.given.rollback()

    async def close(self) -> None:
        self.given.close()


class Psycopg(Caller):
    async def open(self, dsn: str) -> None:
        self.given = psycopg.connect(dsn, row_factory=psycopg.rows.dict_row)

    async def run(self, sql: str) -> None:
        self.given.execute(sql)


class PsycopgBegun(Psycopg):
    """A connection in autocommit, with a transaction block."""

    async def open(self, dsn: str) -> None:
        self.given = psycopg.connect(dsn, autocommit=True)

    async def begin(self) -> None:
        self.given.execute("begin")

    async def commit(self) -> None:
        self.given.execute("commit")

    async def roll_back(self) -> None:
        self.given.execute("rollback")


class Connection(Caller):
    async def open(self, dsn: str) -> None:
        self.engine = sa.create_engine(url(dsn, "psycopg"))
        self.given = self.engine.connect()

    async def run(self, sql: str) -> None:
        self.given.execute(sa.text(sql))

    async def close(self) -> None:
        self.given.close()
        self.engine.dispose()


class Session(Connection):
    async def open(self, dsn: str) -> None:
        self.engine = sa.create_engine(url(dsn, "psycopg"))
        self.given = orm.Session(self.engine)


class Scoped(Connection):
    async def open(self, dsn: str) -> None:
        self.engine = sa.create_engine(url(dsn, "psycopg"))
        self.given = orm.scoped_session(orm.sessionmaker(self.engine))

    async def close(self) -> None:
        self.given.remove()
        self.engine.dispose()


class Awaited(Caller):
    is_sync = False

    async def commit(self) -> None:
        await self.given.commit()

    async def roll_back(self) -> None:
        await self.given.rollback()

    async def close(self) -> None:
        await self.given.close()

    async def run(self, sql: str) -> None:
        await self.given.execute(sql)


class AsyncPsycopg(Awaited):
    async def open(self, dsn: str) -> None:
        self.given = await psycopg.AsyncConnection.connect(dsn)


class Asyncpg(Awaited):
    """A connection with its own codecs for JSON, as many users have."""

    async def open(self, dsn: str) -> None:
        self.given = await asyncpg.connect(dsn)
        for kind in ("json", "jsonb"):
            await self.given.set_type_codec(kind, encoder=repr, decoder=len, schema="pg_catalog")

    async def begin(self) -> None:
        self._transaction = self.given.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def roll_back(self) -> None:
        await self._transaction.rollback()


class AsyncpgPooled(Asyncpg):
    async def open(self, dsn: str) -> None:
        self.pool = await asyncpg.create_pool(dsn, min_size=1, max_size=1)
        self.given = await self.pool.acquire()

    async def close(self) -> None:
        await self.pool.release(self.given)
        await self.pool.close()


class AsyncConnection(Awaited):
    driver = "psycopg"

    async def open(self, dsn: str) -> None:
        self.engine = sa_async.create_async_engine(url(dsn, self.driver))
        self.given = await self.engine.connect().start()

    async def run(self, sql: str) -> None:
        await self.given.execute(sa.text(sql))

    async def close(self) -> None:
        await self.given.close()
        await self.engine.dispose()


class AsyncSession(AsyncConnection):
    async def open(self, dsn: str) -> None:
        self.engine = sa_async.create_async_engine(url(dsn, self.driver))
        self.given = sa_async.AsyncSession(self.engine)


class AsyncConnectionAsyncpg(AsyncConnection):
    driver = "asyncpg"


class AsyncSessionAsyncpg(AsyncSession):
    driver = "asyncpg"


KINDS = {
    kind.__name__: kind
    for kind in (
        Psycopg, PsycopgBegun, Connection, Session, Scoped, AsyncPsycopg, Asyncpg, AsyncpgPooled,
        AsyncConnection, AsyncSession, AsyncConnectionAsyncpg, AsyncSessionAsyncpg,
    )
}  # fmt: skip
