"""The Postgres store: every verb a function in the database, one round trip and one commit each.

Any number of processes share it. This side encodes, calls and decodes; what a verb does stands in functions/.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from holdfast.errors import Unavailable
from holdfast.records import Instant, Traits
from holdfast.stores.checked import checked

from . import forks, migrate
from .address import parsed
from .calling import CALL_SECONDS, ONCE, called
from .calls import seconds_for
from .errors import DRIVER, translated
from .forwarding import ForwardRoom
from .lent import LentLink, refuse_inside
from .limits import LimitsRoom
from .links import Link, connected
from .listening import Ears, brings_news
from .openings import check_server
from .outbox import OutboxRoom
from .pools import Pool
from .purge import PurgeRoom
from .queue import QueueRoom
from .reads import ReadsRoom
from .renewing import Renewer, RenewingRoom
from .schedules import ScheduleRoom
from .transact import TransactRoom
from .waits import WaitsRoom

Clock = Callable[[], Instant]
Pools = dict[asyncio.AbstractEventLoop, Pool]


@checked
class PostgresStore(
    QueueRoom,
    TransactRoom,
    RenewingRoom,
    WaitsRoom,
    OutboxRoom,
    ScheduleRoom,
    LimitsRoom,
    PurgeRoom,
    ReadsRoom,
    ForwardRoom,
):
    """Every verb of the contract over one schema of a database.

    `clock`: for tests, on a database that was told to heed it. `create`: False for a store that is opened
    only if it is there and up to date.
    """

    def __init__(self, url: str, clock: Clock | None = None, *, create: bool = True) -> None:
        self.address, self._clock, self._create = parsed(url), clock, create
        self.call_seconds = CALL_SECONDS
        # One commit is written while the other is read, on whichever side. Where no hints come, it polls.
        polls = 10.0 if self.address.listen else 1.0
        self.traits = Traits(writers=2, poll_seconds=polls, awaits_work=True)
        self._sql: dict[tuple[str, int], str] = {}
        self._is_open = False
        self._begin()
        forks.watched(self)

    def _begin(self) -> None:
        self._changing = threading.Lock()  # a store may be opened, asked and closed from several event loops
        self._pools: Pools = {}
        self._lenders: Pools = {}  # apart: user code that keeps all of them must not keep verbs from theirs
        self._renewer = Renewer(self.address)
        self._ears = Ears(self.address)

    async def open(self) -> None:
        if self._is_open:
            return
        try:
            link = await connected(self.address)
            try:
                await self._check(link)
            except BaseException:
                link.abandon()
                await asyncio.sleep(0)  # or its transport may outlive the loop
                raise
        except DRIVER as error:
            raise translated(error, self.address.shown) from error
        self._is_open = True
        self._pool().adopt(link)

    async def _check(self, link: Link) -> None:
        await check_server(link, self.address)
        await migrate.up_to_date(link, self.address, create=self._create)

    async def close(self) -> None:
        self._is_open = False
        with self._changing:
            pools = [*self._lenders.items(), *self._pools.items()]
            self._lenders, self._pools = {}, {}
        here = asyncio.get_running_loop()
        for loop, pool in pools:
            if loop is here:
                await pool.close()
            elif loop.is_closed():
                pool.abandon()
            else:
                loop.call_soon_threadsafe(pool.abandon)
        await self._ears.close()
        self._renewer.close()

    def left_behind(self) -> object:
        for pool in (*self._pools.values(), *self._lenders.values()):
            pool.disown()
        self._renewer.disown()
        self._ears.disown()
        kept = self._pools, self._lenders, self._renewer, self._ears
        self._begin()
        return kept

    # How verbs reach the database.

    def _pool(self) -> Pool:
        """That of this event loop."""
        refuse_inside(self.address)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # beside a caller's connection, in plain code
            raise Unavailable(f"{self.address.shown}: there is no event loop to ask it on") from None
        pool = self._pools.get(loop)
        return pool if pool is not None else self._new_pool(self._pools, loop)

    def _lending(self) -> Pool:
        loop = asyncio.get_running_loop()
        return self._lenders.get(loop) or self._new_pool(self._lenders, loop, LentLink)

    def _new_pool(
        self, pools: Pools, loop: asyncio.AbstractEventLoop, kind: type[Link] | None = None
    ) -> Pool:
        if not self._is_open:
            raise Unavailable(f"{self.address.shown}: the store is not open")
        with self._changing:
            for ended in [one for one in pools if one.is_closed()]:
                pools.pop(ended).abandon()
            pool = pools[loop] = Pool(self.address, kind)
        return pool

    async def _call(self, verb: str, *args: Any) -> Any:
        sql = self._statement(verb, len(args))
        limit = self.call_seconds + seconds_for(*args)
        if self._clock is not None:
            answer = await called(self._pool(), sql, (*args, str(self._clock())), 1, limit, once=verb in ONCE)
        else:
            answer = await called(self._pool(), sql, args, 0, limit, once=verb in ONCE)
        if not self.address.listen and brings_news(verb, args):
            self._ears.ring()
        return answer

    def _call_blocking(self, limit_seconds: float, verb: str, *args: Any) -> Any:
        if not self._is_open:
            raise Unavailable(f"{self.address.shown}: the store is not open")
        sql = self._statement(verb, len(args))
        if self._clock is not None:
            return self._renewer.call(sql, (*args, str(self._clock())), 1, limit_seconds)
        return self._renewer.call(sql, args, 0, limit_seconds)

    def _statement(self, verb: str, count: int) -> str:
        sql = self._sql.get((verb, count))
        if sql is None:
            places = ", ".join(f"${number}" for number in range(1, count + 1))
            sql = f'"{self.address.schema}".{verb}({places})'
            if self._clock is not None:
                sql = f"set_config('holdfast.now', ${count + 1}, true), {sql}"
            sql = self._sql[verb, count] = f"select {sql}"
        return sql

    # Hints.

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        return self._ears.listen(hint)


__all__ = ["PostgresStore"]
