"""`Live`: live trails and long polls for any number of subscribers of one process, by one shared reader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from holdfast.arguments import BIG_MAX, Seconds, check_duration, check_id, check_list, check_text, check_whole
from holdfast.contract import Store
from holdfast.engine.present import present_run
from holdfast.errors import TooManySubscribers, Unavailable, UsageError
from holdfast.lifecycle import FINAL
from holdfast.records import Run, Tenant, tenant_name
from holdfast.world import World

from .reader import Reader, Subscriber
from .subscriptions import AllTrail, RunTrail, Waiter
from .turns import Turns

T = TypeVar("T")

SUBSCRIBERS_MAX = 10_000
TYPES_MAX = 100  # types in one subscription
# Reads of single subscribers under way at once: the reader and others need the store too. Tenants take turns.
READS_MAX = 4
FIRST_SECONDS = 15.0  # time for the first read of a subscriber, and for its turn
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 5.0  # delay after a read that failed, doubling


class Live:
    """The subscribers of one process and event loop. The store is open, and stays open until `close`.

    Subscribers cost the store one shared reader: it looks at most ten times a second while there is news, and
    about once a second or less while there is none. Each subscriber reads its first page itself.
    """

    def __init__(self, store: Store, world: World, *, limit: int = SUBSCRIBERS_MAX) -> None:
        self.store, self._world = store, world
        self._limit = check_whole("limit", limit, 1)
        self._reader = Reader(store)
        self._reading: asyncio.Task[None] | None = None
        self._reads = Turns(READS_MAX)
        self._under_way: set[asyncio.Timeout] = set()
        self._is_closed = False
        self.subscribers = 0
        self.buffered = 0

    def trail(self, run: UUID | str, tenant: Tenant, after: int = 0) -> RunTrail:
        """Subscribe to the trail of one run as it is stored, not of its chain: the rows after a number, then
        those that come, then the end. `async with` raises UnknownRun, TooManySubscribers, StoreError.

            async with live.trail(run, tenant, after) as trail:
                async for news in trail: ...  # TrailEntry, …, and last Ended, Gone or Closed
        """
        return RunTrail(self, check_id(run), tenant, check_whole("after", after, 0, BIG_MAX))

    def tenant_trail(self, tenant: Tenant, after: int | None = None, types: Sequence[str] = ()) -> AllTrail:
        """Subscribe to the trail over all runs of a tenant, or with ANY of all tenants (the audit). It ends
        with `Closed` only. `after` None: from now on. While a transaction is open for long, that may begin
        with rows of the minutes before. Subscriptions with the same tenant and types share their reads.
        """
        types = [check_text("type", one) for one in check_list("types", types)]
        if len(types) > TYPES_MAX:
            raise UsageError(f"types: at most {TYPES_MAX}, not {len(types)}")
        place = None if after is None else check_whole("after", after, 0, BIG_MAX)
        return AllTrail(self, tenant, types, place)

    async def ended(self, run: UUID | str, tenant: Tenant, wait: Seconds) -> Run | None:
        """Return the final run, for a chain the last one; None after `wait`, and when this process stops.
        UnknownRun, TooManySubscribers; StoreError, if the store does not answer the first read.
        """
        run, seconds = check_id(run), check_duration("wait", wait)
        found = await self.once(lambda: present_run(self.store, run, tenant), tenant)
        if found is None or found.status in FINAL or not seconds:
            return found if found is not None and found.status in FINAL else None
        waiter = Waiter(found.id)
        self.enter(waiter)
        try:
            async with asyncio.timeout(seconds):
                return await self._ended(waiter, lambda: present_run(self.store, run, tenant), tenant)
        except TimeoutError:
            return None
        finally:
            self.leave(waiter)

    async def _ended(self, waiter: Waiter, read: Callable[[], Awaitable[Run]], tenant: Tenant) -> Run | None:
        while True:
            await waiter.changed()
            found = await self.patiently(read, tenant)
            if found is None or found.status in FINAL:
                return found
            self._move(waiter, found.id)

    async def close(self) -> None:
        """End all subscriptions at once. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for one in self._reader.all():
            one.close()
        for scope in self._under_way:
            with suppress(RuntimeError):  # its time is over at this moment
                scope.reschedule(asyncio.get_running_loop().time())
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])

    # For subscriptions.

    def enter(self, one: Subscriber) -> None:
        """Count a subscriber, and read for it."""
        if self.subscribers >= self._limit:
            raise TooManySubscribers(self._limit)
        self.subscribers += 1
        self._reader.add(one)
        self.look_soon()
        if self._is_closed:
            one.close()
        elif self._reading is None or self._reading.done():
            self._reading = self._world.spawn(self._reader.run(), "holdfast-live")

    def leave(self, one: Subscriber) -> None:
        """Read for this subscriber no more. A second call does nothing."""
        if self._reader.remove(one):
            self.subscribers -= 1
            if not self.subscribers:
                self.look_soon()  # the reader ends

    def look_soon(self) -> None:
        self._reader.look_soon()

    def _move(self, waiter: Waiter, run: UUID) -> None:
        self._reader.remove(waiter)
        waiter.source = run
        self._reader.add(waiter)
        self.look_soon()

    async def once(self, read: Callable[[], Awaitable[T]], tenant: Tenant) -> T | None:
        """Make the first read of a subscriber. None: this process stops."""
        scope = asyncio.timeout(FIRST_SECONDS)
        self._under_way.add(scope)
        try:
            async with scope, self._reads.of(tenant_name(tenant)):
                return await read()
        except TimeoutError:
            if self._is_closed:
                return None
            raise Unavailable(f"the store has not answered within {FIRST_SECONDS:g} s") from None
        finally:
            self._under_way.discard(scope)

    async def patiently(self, read: Callable[[], Awaitable[T]], tenant: Tenant) -> T | None:
        """Read for one subscriber; while the store is not available, retry. None: this process stops."""
        delay, scope = RETRY_SECONDS, asyncio.timeout(None)
        self._under_way.add(scope)
        try:
            async with scope:
                while not self._is_closed:
                    try:
                        async with self._reads.of(tenant_name(tenant)):
                            return await read()
                    except Unavailable:
                        await asyncio.sleep(delay * (0.5 + self._world.chance() / 2))
                        delay = min(2 * delay, RETRY_SECONDS_MAX)
        except TimeoutError:
            pass  # closed meanwhile
        finally:
            self._under_way.discard(scope)
        return None
