"""The Postgres store: every verb a function in the database, one round trip and one commit each.

Any number of processes share it. This side encodes, calls and decodes; what a verb does stands in functions/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg

from holdfast.errors import Unavailable
from holdfast.records import Instant

from . import migrate
from .address import parsed
from .errors import translated
from .gates import GatesRoom
from .limits import LimitsRoom
from .outbox import OutboxRoom
from .people import PeopleRoom
from .purge import PurgeRoom
from .queue import QueueRoom
from .reads import ReadsRoom
from .schedules import ScheduleRoom
from .waits import WaitsRoom

Clock = Callable[[], Instant]


class PostgresStore(
    QueueRoom, WaitsRoom, PeopleRoom, GatesRoom, OutboxRoom, ScheduleRoom, LimitsRoom, PurgeRoom, ReadsRoom
):
    """Every verb of the contract over one schema of a database."""

    def __init__(self, url: str, clock: Clock | None = None, *, create: bool = True) -> None:
        self.address, self._clock, self._create = parsed(url), clock, create
        self._pools: dict[asyncio.AbstractEventLoop, asyncpg.Pool] = {}
        self._sql: dict[tuple[str, int], str] = {}

    async def open(self) -> None:
        await self._pool()

    async def close(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    async def _pool(self) -> asyncpg.Pool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            pool = await asyncpg.create_pool(self.address.dsn, min_size=1, max_size=8)
            async with pool.acquire() as connection:
                await migrate.up_to_date(connection, self.address.schema)
            self._pools[loop] = pool
        return self._pools[loop]

    async def _call(self, verb: str, *args: Any) -> Any:
        pool = await self._pool()
        try:
            async with pool.acquire() as connection:
                if self._clock is not None:
                    await connection.execute("select set_config('holdfast.now', $1, false)", str(self._clock()))
                return await connection.fetchval(self._statement(verb, len(args)), *args)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise translated(error, self.address.shown) from error

    def _statement(self, verb: str, count: int) -> str:
        sql = self._sql.get((verb, count))
        if sql is None:
            places = ", ".join(f"${number}" for number in range(1, count + 1))
            sql = self._sql[verb, count] = f'select "{self.address.schema}".{verb}({places})'
        return sql

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


__all__ = ["PostgresStore", "Unavailable"]
