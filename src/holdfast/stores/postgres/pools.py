"""The sessions of one event loop: few, warm, opened as needed.

One attempt to connect at a time, with pauses that grow, so that a server which comes back is not run over.
Whoever waits for one meanwhile has some patience, for the server may just be starting anew, and is then
told why there is none.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.errors import HoldfastError, StoreError, Unavailable

from .address import Address
from .errors import DRIVER, translated
from .links import Link, bury, connected, disown

PATIENCE_SECONDS = 2.0  # for a server that cannot be reached: it may just be starting anew
MOST = 8
KEPT = 4  # idle ones, for good: a new session compiles each verb before its first call
IDLE_SECONDS = 30.0
REST_SECONDS = 2.0  # what calls under way are given when the pool is closed
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0
CANCEL_SECONDS = 1.0  # for the driver, to tell the server that nobody waits any more
# A plan that was made for an empty table stays until the next analyze, however slow it has become.
PLANS_SECONDS, SLOW_SECONDS, PLANS_AGAIN_SECONDS = 60.0, 0.2, 1.0
PLANNED_SECONDS = 5.0  # what that may take


class Pool:
    """Used on its own event loop only, but for `abandon`."""

    def __init__(self, address: Address, kind: type[Link] | None = None) -> None:
        self.loop, self._kind = asyncio.get_running_loop(), kind
        self._address, self.where = address, address.shown
        self._now = self.loop.time
        self._idle: list[Link] = []  # the last one given back is the first one taken
        self.links: set[Link] = set()  # all that are open, idle or not, and those being left
        self._count = 0  # idle and at work
        self._waiting: deque[asyncio.Future[Link]] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._trouble: HoldfastError | None = None
        self._trim: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()

    # -- who has which -------------------------------------------------------------------------

    @asynccontextmanager
    async def lent(self, limit_seconds: float) -> AsyncIterator[Link]:
        """A session for several statements. Left with a transaction open, or in trouble, it is discarded."""
        link = self.idle() or await self.wait(self.loop.time() + limit_seconds)
        sound = False
        try:
            yield link
            sound = True
        except Exception as error:
            sound = not isinstance(error, TimeoutError)  # after which the driver still has to do with it
            raise
        finally:
            if sound and not link.is_closed() and not link.is_in_transaction():
                self.give(link)
            else:
                self.discard(link)

    def idle(self) -> Link | None:
        """One at once, if there is one."""
        while self._idle:
            link = self._idle.pop()
            if not link.is_closed():
                return link
            self.discard(link)
        return None

    async def wait(self, until: float) -> Link:
        """The next that is free, or a new one."""
        if self._closed:
            raise Unavailable(f"{self.where}: the store is not open")
        if self._trouble is not None and not self._count:
            until = min(until, self._now() + PATIENCE_SECONDS)
        waiter: asyncio.Future[Link] = self.loop.create_future()
        waiter.add_done_callback(_seen)
        self._waiting.append(waiter)
        self._grow()
        link = None
        try:
            async with asyncio.timeout_at(until):
                link = await waiter
            return link
        except TimeoutError:
            busy = f"{self.where}: all {MOST} connections of this process were busy for too long"
            raise _anew(self._trouble or Unavailable(busy)) from None
        finally:
            if link is None:
                self._withdraw(waiter)

    def _withdraw(self, waiter: asyncio.Future[Link]) -> None:
        """Whoever waited is gone; what was handed to him at that moment is for the next."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.give(waiter.result())
        with suppress(ValueError):
            self._waiting.remove(waiter)

    def give(self, link: Link, took: float = 0.0) -> None:
        """Back, after a call that took so long."""
        if self._closed or link.is_closed():
            self.discard(link)
            return
        now = self._now()
        old = now - link.planned_at
        if old > PLANS_SECONDS or (took > SLOW_SECONDS and old > PLANS_AGAIN_SECONDS):
            self._spawn(self._plan_anew(link))
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(link)
                return
        link.idle_since = now
        self._idle.append(link)
        if self._trim is None and len(self._idle) > KEPT:
            self._trim = self.loop.call_later(IDLE_SECONDS, self._trim_idle)

    async def _plan_anew(self, link: Link) -> None:
        link.planned_at = self._now()
        try:
            await link.execute(link.tidy(), timeout=PLANNED_SECONDS)
        except BaseException as error:
            self.discard(link)
            if not isinstance(error, DRIVER):
                raise
        else:
            self.give(link)

    def discard(self, link: Link) -> None:
        """It is of no use any more."""
        if link in self.links:
            self._count -= 1
            self._cut(link)
            self._grow()

    def leave(self, link: Link) -> None:
        """Its call is not waited for: the driver has a moment to tell the server so, and then it is cut."""
        self._count -= 1
        self.loop.call_later(CANCEL_SECONDS, self._cut, link)
        self._grow()

    def _cut(self, link: Link) -> None:
        self.links.discard(link)
        link.abandon()
        if self._closed and not self.links:
            self._empty.set()

    def drop_idle(self) -> None:
        """Where one was lost, the others may be so too, and not know it."""
        while self._idle:
            self.discard(self._idle.pop())

    def _trim_idle(self) -> None:
        self._trim = None
        old = self._now() - IDLE_SECONDS
        while len(self._idle) > KEPT and self._idle[0].idle_since <= old:
            link = self._idle.pop(0)
            self._count -= 1
            self._spawn(self._part(link))
        if len(self._idle) > KEPT:
            self._trim = self.loop.call_later(IDLE_SECONDS / 2, self._trim_idle)

    async def _part(self, link: Link) -> None:
        await link.leave()
        self.links.discard(link)

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work, name="holdfast-connection")
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # -- opening -------------------------------------------------------------------------------

    def _grow(self) -> None:
        if self._waiting and self._opening is None and self._count < MOST and not self._closed:
            self._opening = self.loop.create_task(self._open(), name="holdfast-connect")

    async def _open(self) -> None:
        """One after the other, for as long as somebody waits."""
        pause = PAUSE_SECONDS
        try:
            while self._waiting and self._count < MOST and not self._closed:
                try:
                    self.adopt(await connected(self._address, kind=self._kind))
                    self._trouble, pause = None, PAUSE_SECONDS
                except (*DRIVER, StoreError) as error:
                    self._complain(translated(error, self.where))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
        finally:
            self._opening = None

    def adopt(self, link: Link) -> None:
        """A new one, opened on this loop."""
        self.links.add(link)
        self._count += 1
        self.give(link)

    def _complain(self, trouble: HoldfastError) -> None:
        """Those who wait for nothing else are told, after a while; those who come later wait that long."""
        first, self._trouble = self._trouble is None, trouble
        if self._count:
            return  # one that is at work will be free: there may just be too many
        for waiter in self._waiting:
            if not isinstance(trouble, Unavailable):
                _refuse(waiter, trouble)
            elif first:
                self.loop.call_later(PATIENCE_SECONDS, _refuse, waiter, trouble)

    # -- the end -------------------------------------------------------------------------------

    async def close(self) -> None:
        """What is under way has a moment to end; nothing is left open."""
        self._closed = True
        self._end_waiting()
        if self._trim is not None:
            self._trim.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(link.leave() for link in idle))
        self.links.difference_update(idle)
        if self.links:
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    await self._empty.wait()
        self.abandon()
        await asyncio.sleep(0)  # or the transports of what was cut would outlive their loop

    def _end_waiting(self) -> None:
        for task in (self._opening, *self._chores):
            if task is not None:
                task.cancel()
        for waiter in self._waiting:
            _refuse(waiter, Unavailable(f"{self.where}: the store was closed"))

    def abandon(self) -> None:
        """Without a word, and from anywhere when the loop has ended."""
        self._closed = True
        part = bury if self.loop.is_closed() else Link.abandon
        for link in self.links:
            part(link)
        self.links.clear()
        self._idle.clear()

    def disown(self) -> None:
        """In a child: they are the parent's."""
        for link in self.links:
            disown(link)


def _refuse(waiter: asyncio.Future[Link], why: HoldfastError) -> None:
    if not waiter.done():
        waiter.set_exception(_anew(why))


def _anew(error: HoldfastError) -> HoldfastError:
    """Each who is told gets one of his own: raising it writes into it."""
    return type(error)(*error.args)


def _seen(waiter: asyncio.Future[Link]) -> None:
    """Nobody may be left to look at what it was told."""
    if not waiter.cancelled():
        waiter.exception()
