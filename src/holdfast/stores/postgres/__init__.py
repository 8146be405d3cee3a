"""The Postgres store: every verb is one function in the database, one round trip and one commit.

Any number of processes share a store. Python encodes, calls and decodes; the functions in functions/ do the
work.

| folder | content |
|---|---|
| `verbs/` | the verbs of the contract, as calls of functions |
| `sessions/` | connections to the server: pools, calls with retries, lease renewal, listeners |
| `caller/` | verbs in the caller's own transaction |
| `functions/`, `schema/` | SQL: the functions, and the tables |
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.errors import Unavailable
from holdfast.records import Instant, Traits
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.stores.checked import checked
from holdfast.stores.opening import Opening

from . import migrate
from .address import parsed
from .caller.guarded_session import GuardedSession, refuse_inside
from .caller.transact import TransactVerbs
from .errors import DRIVER, translated
from .server_check import check_server
from .sessions import forks
from .sessions.listener import Listeners, brings_news, may_call_holders
from .sessions.pool import Pool
from .sessions.renewal import RenewalVerb, Renewer
from .sessions.sending import CALL_SECONDS, LONG_SECONDS, NOT_RESENT, send
from .sessions.session import Session, connected
from .verbs.calls import seconds_for
from .verbs.forwarding import ForwardedVerbs
from .verbs.keys import KeyVerbs
from .verbs.limits import LimitVerbs
from .verbs.outbox import OutboxVerbs
from .verbs.purge import PurgeVerb
from .verbs.queue import QueueVerbs
from .verbs.reads import ReadVerbs
from .verbs.schedules import ScheduleVerbs
from .verbs.transfer import TransferVerbs
from .verbs.waits import WaitVerbs

Clock = Callable[[], Instant]
Pools = dict[asyncio.AbstractEventLoop, Pool]


@checked
class PostgresStore(
    QueueVerbs,
    TransactVerbs,
    RenewalVerb,
    WaitVerbs,
    OutboxVerbs,
    ScheduleVerbs,
    LimitVerbs,
    KeyVerbs,
    PurgeVerb,
    TransferVerbs,
    ReadVerbs,
    ForwardedVerbs,
):
    """Every verb of the contract over one schema of a database.

    `clock`: for tests, on a database whose `clock()` reads it. `create`: False opens only a store that exists
    and is up to date.
    """

    def __init__(self, url: str, clock: Clock | None = None, *, create: bool = True) -> None:
        self.address, self._clock, self._create = parsed(url), clock, create
        self.call_seconds = CALL_SECONDS
        # Two commits may be under way: one is written while the other is read. Without wake-ups the worker
        # polls.
        polls = HINTED_POLL_SECONDS if self.address.listen else 1.0
        self.traits = Traits(writers=2, poll_seconds=polls, awaits_work=True)
        self._sql: dict[tuple[str, int], str] = {}
        self._is_open = False
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._changing = threading.Lock()  # several event loops may open, use and close a store
        self._opening = Opening()
        self._pools: Pools = {}
        # Apart from `_pools`: user code that uses all of these sessions must not take sessions away from
        # verbs.
        self._guarded_pools: Pools = {}
        self._renewer = Renewer(self.address)
        self._listeners = Listeners(self.address)

    async def open(self) -> None:
        if not self._is_open:
            await self._opening.share(self._open)

    async def _open(self) -> None:
        try:
            session = await connected(self.address)
            try:
                await self._check(session)
            except BaseException:
                session.abandon()
                await asyncio.sleep(0)  # otherwise its transport may outlive the loop
                raise
        except DRIVER as error:
            raise translated(error, self.address.shown) from error
        self._is_open = True
        self._pool().adopt(session)

    async def _check(self, session: Session) -> None:
        await check_server(session, self.address)
        await migrate.up_to_date(session, self.address, create=self._create)

    async def close(self) -> None:
        """Release everything, also when the caller gives up meanwhile."""
        try:
            await self._opening.end()
        finally:
            self._is_open = False
            try:
                await self._close_pools()
            finally:
                try:
                    await self._listeners.close()
                finally:
                    self._renewer.close()

    async def _close_pools(self) -> None:
        with self._changing:
            pools = [*self._guarded_pools.items(), *self._pools.items()]
            self._guarded_pools, self._pools = {}, {}
        here = asyncio.get_running_loop()
        for loop, pool in pools:
            if loop is not here:
                try:
                    loop.call_soon_threadsafe(pool.abandon)
                except RuntimeError:  # the loop has ended
                    pool.abandon()
        mine = [pool for loop, pool in pools if loop is here]
        try:
            for pool in mine:
                await pool.close()
        finally:
            for pool in mine:
                pool.abandon()  # those that the caller did not wait for

    def forget_sessions(self) -> object:
        for pool in (*self._pools.values(), *self._guarded_pools.values()):
            pool.disown()
        self._renewer.disown()
        self._listeners.disown()
        kept = self._pools, self._guarded_pools, self._renewer, self._listeners
        self._begin()
        return kept

    # Calls of functions.

    def _pool(self) -> Pool:
        """Return the pool of this event loop."""
        refuse_inside(self.address)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # in sync code, beside a caller's connection
            raise Unavailable(f"{self.address.shown}: there is no event loop to ask it on") from None
        pool = self._pools.get(loop)
        return pool if pool is not None else self._new_pool(self._pools, loop)

    def _guarded_pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        return self._guarded_pools.get(loop) or self._new_pool(self._guarded_pools, loop, GuardedSession)

    def _new_pool(
        self, pools: Pools, loop: asyncio.AbstractEventLoop, kind: type[Session] | None = None
    ) -> Pool:
        with self._changing:
            if not self._is_open:  # perhaps closed by another thread just now: nobody would close the pool
                raise Unavailable(f"{self.address.shown}: the store is not open")
            for ended in [one for one in pools if one.is_closed()]:
                pools.pop(ended).abandon()
            pool = pools[loop] = Pool(self.address, kind)
        return pool

    async def _call(self, verb: str, *args: Any) -> Any:
        sql = self._statement(verb, len(args))
        limit = LONG_SECONDS.get(verb, self.call_seconds) + seconds_for(*args)
        if self._clock is not None:
            answer = await send(
                self._pool(), sql, (*args, str(self._clock())), 1, limit, once=verb in NOT_RESENT
            )
        else:
            answer = await send(self._pool(), sql, args, 0, limit, once=verb in NOT_RESENT)
        if not self.address.listen and (brings_news(verb, args) or may_call_holders(verb)):
            self._listeners.notify(holders=may_call_holders(verb))
        return answer

    def _call_soon(self, verb: str) -> None:
        self._pool().soon(verb, partial(self._call, verb))

    async def _call_listener(self, verb: str, *args: Any) -> Any:
        sql = self._statement(verb, len(args))
        if self._clock is not None:
            answer = await self._listeners.ask(sql, (*args, str(self._clock())), 1)
        else:
            answer = await self._listeners.ask(sql, args, 0)
        return answer if answer is not None else await self._call(verb, *args)

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

    # Wake-ups.

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        if not self._is_open:  # nobody would close the session
            return lambda: None
        return self._listeners.listen(hint, holders)

    def hears(self) -> bool:
        return self._listeners.hears


__all__ = ["PostgresStore"]
