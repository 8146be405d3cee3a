"""The pool of sessions of one event loop: few, warm, opened as needed.

There is one attempt to connect at a time, with growing pauses, so that a server that comes back is not
overrun. A caller that waits for a session gets the reason after a short time, because the server may just be
restarting.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from math import inf
from typing import Any

from holdfast.errors import HoldfastError, StoreError, Unavailable
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import DRIVER, translated

from .session import Session, close_without_loop, connected, disown

PATIENCE_SECONDS = 2.0  # for a server that cannot be reached: it may just be restarting
MOST = 8
KEPT = 4  # idle sessions that stay open: a new session plans each verb before its first call
IDLE_SECONDS = 30.0
REST_SECONDS = 2.0  # time for calls under way when the pool is closed
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 1.0
CANCEL_SECONDS = 1.0  # time for the driver to tell the server that nobody waits any more
# A plan that was made for an empty table stays until the next analyze, however slow it has become.
PLANS_SECONDS, SLOW_SECONDS, PLANS_AGAIN_SECONDS = 60.0, 0.2, 1.0
PLANS_CALLS = 100  # fewer calls are not worth it, unless one of them is slow
PLANNED_SECONDS = 5.0  # time limit for discarding plans


class Pool:
    """A pool. Use it on its own event loop only, except for `abandon`."""

    def __init__(self, address: Address, kind: type[Session] | None = None) -> None:
        self.loop, self._kind = asyncio.get_running_loop(), kind
        self._address, self.where = address, address.shown
        self._now = self.loop.time
        self._idle: list[Session] = []  # the last one given back is the first one taken
        self.sessions: set[Session] = set()  # all that are open: idle, in use, and being closed
        self._count = 0  # idle and in use
        self._waiting: deque[asyncio.Future[Session]] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._soon: dict[str, bool] = {}  # calls on their way that nobody waits for; True: asked for again
        self._trouble: HoldfastError | None = None
        self._trim: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()

    # -- taking and giving back ----------------------------------------------------------------

    @asynccontextmanager
    async def borrow(self, limit_seconds: float) -> AsyncIterator[Session]:
        """Give a session for several statements. It is discarded if it is left in a transaction or after a
        timeout.
        """
        session = self.idle() or await self.wait(self.loop.time() + limit_seconds)
        sound = False
        try:
            yield session
            sound = True
        except Exception as error:
            sound = not isinstance(error, TimeoutError)  # then the driver is still busy with it
            raise
        finally:
            if sound and not session.is_closed() and not session.is_in_transaction():
                self.give(session)
            else:
                self.discard(session)

    def idle(self) -> Session | None:
        """Return an idle session; None when there is none."""
        while self._idle:
            session = self._idle.pop()
            if not session.is_closed():
                return session
            self.discard(session)
        return None

    async def wait(self, until: float) -> Session:
        """Wait for the next free session, or a new one."""
        if self._closed:
            raise Unavailable(f"{self.where}: the store is not open")
        if self._trouble is not None and not self._count:
            until = min(until, self._now() + PATIENCE_SECONDS)
        waiter: asyncio.Future[Session] = self.loop.create_future()
        waiter.add_done_callback(_mark_retrieved)
        self._waiting.append(waiter)
        self._grow()
        session = None
        try:
            async with asyncio.timeout_at(until):
                session = await waiter
            return session
        except TimeoutError:
            busy = f"{self.where}: all {MOST} connections of this process were busy for too long"
            raise _copied(self._trouble or Unavailable(busy)) from None
        finally:
            if session is None:
                self._withdraw(waiter)

    def _withdraw(self, waiter: asyncio.Future[Session]) -> None:
        """Remove a waiter that is gone. A session that it got at that moment is given to the next."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.give(waiter.result())
        with suppress(ValueError):
            self._waiting.remove(waiter)

    def give(self, session: Session, took: float = 0.0) -> None:
        """Take a session back, after a call that took so many seconds."""
        if self._closed or session.is_closed():
            self.discard(session)
            return
        now = self._now()
        old = now - session.planned_at
        session.calls += 1
        is_old = old > PLANS_SECONDS and (session.calls > PLANS_CALLS or old == inf)
        if is_old or (took > SLOW_SECONDS and old > PLANS_AGAIN_SECONDS):
            self._spawn(self._plan_anew(session))
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(session)
                return
        session.idle_since = now
        self._idle.append(session)
        if self._trim is None and len(self._idle) > KEPT:
            self._trim = self.loop.call_later(IDLE_SECONDS, self._trim_idle)

    async def _plan_anew(self, session: Session) -> None:
        session.planned_at, session.calls = self._now(), 0
        try:
            await session.execute(session.tidy(), timeout=PLANNED_SECONDS)
        except BaseException as error:
            self.discard(session)
            if not isinstance(error, DRIVER):
                raise
        else:
            self.give(session)

    def discard(self, session: Session) -> None:
        """Close a session that is of no use any more."""
        if session in self.sessions:
            self._count -= 1
            self._cut(session)
            self._grow()

    def leave(self, session: Session) -> None:
        """Give up a session whose call is not waited for: the driver gets a moment to tell the server, then
        it is closed.
        """
        self._count -= 1
        self.loop.call_later(CANCEL_SECONDS, self._cut, session)
        self._grow()

    def _cut(self, session: Session) -> None:
        self.sessions.discard(session)
        session.abandon()
        if self._closed and not self.sessions:
            self._empty.set()

    def drop_idle(self) -> None:
        """Close idle sessions after one was lost: the others may be lost too."""
        while self._idle:
            self.discard(self._idle.pop())

    def _trim_idle(self) -> None:
        self._trim = None
        old = self._now() - IDLE_SECONDS
        while len(self._idle) > KEPT and self._idle[0].idle_since <= old:
            session = self._idle.pop(0)
            self._count -= 1
            self._spawn(self._part(session))
        if len(self._idle) > KEPT:
            self._trim = self.loop.call_later(IDLE_SECONDS / 2, self._trim_idle)

    async def _part(self, session: Session) -> None:
        await session.leave()
        self.sessions.discard(session)

    def soon(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call that need not succeed, in a task of its own. Callers in between share one more call,
        which begins after all of them have asked.
        """
        if name not in self._soon:
            self._soon[name] = True
            self._spawn(self._make(name, call))
        else:
            self._soon[name] = True

    async def _make(self, name: str, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            while self._soon[name]:
                self._soon[name] = False
                with suppress(HoldfastError):
                    await call()
        finally:
            del self._soon[name]

    def _spawn(self, work: Any) -> None:
        # Sessions are for all: they have no context of the caller that happened to ask first.
        task = self.loop.create_task(work, name="holdfast-connection", context=Context())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # -- opening -------------------------------------------------------------------------------

    def _grow(self) -> None:
        if self._waiting and self._opening is None and self._count < MOST and not self._closed:
            self._opening = self.loop.create_task(self._open(), name="holdfast-connect", context=Context())

    async def _open(self) -> None:
        """Open sessions one after the other, as long as somebody waits."""
        pause = PAUSE_SECONDS
        try:
            while self._waiting and self._count < MOST and not self._closed:
                try:
                    self.adopt(await connected(self._address, kind=self._kind))
                    self._trouble, pause = None, PAUSE_SECONDS
                except (*DRIVER, StoreError) as error:
                    self._report(translated(error, self.where))
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
        finally:
            self._opening = None

    def adopt(self, session: Session) -> None:
        """Add a new session that was opened on this loop."""
        self.sessions.add(session)
        self._count += 1
        self.give(session)

    def _report(self, trouble: HoldfastError) -> None:
        """Tell waiters why there is no session: those of the first failure after a while; later ones wait for
        that long.
        """
        first, self._trouble = self._trouble is None, trouble
        if self._count:
            return  # a session in use will be free: there may just be too many waiters
        for waiter in self._waiting:
            if not isinstance(trouble, Unavailable):
                _refuse(waiter, trouble)
            elif first:
                self.loop.call_later(PATIENCE_SECONDS, _refuse, waiter, trouble)

    # -- closing -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the pool. Calls under way get a moment to end; then everything is closed."""
        self._closed = True
        self._end_waiting()
        if self._trim is not None:
            self._trim.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(session.leave() for session in idle))
        self.sessions.difference_update(idle)
        if self.sessions:
            with suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    await self._empty.wait()
        self.abandon()
        await asyncio.sleep(0)  # otherwise the transports of closed sessions would outlive their loop

    def _end_waiting(self) -> None:
        for task in (self._opening, *self._chores):
            if task is not None:
                task.cancel()
        for waiter in self._waiting:
            _refuse(waiter, Unavailable(f"{self.where}: the store was closed"))

    def abandon(self) -> None:
        """Close everything at once. When the loop has ended, any thread may call this."""
        self._closed = True
        part = close_without_loop if self.loop.is_closed() else Session.abandon
        for session in self.sessions:
            part(session)
        self.sessions.clear()
        self._idle.clear()

    def disown(self) -> None:
        """Leave the parent's sessions alone, in a child."""
        for session in self.sessions:
            disown(session)


def _refuse(waiter: asyncio.Future[Session], why: HoldfastError) -> None:
    if not waiter.done():
        waiter.set_exception(_copied(why))


def _copied(error: HoldfastError) -> HoldfastError:
    """Return a copy: each waiter gets an error of its own, because raising an error changes it."""
    return type(error)(*error.args)


def _mark_retrieved(waiter: asyncio.Future[Session]) -> None:
    """Mark the exception as retrieved: the waiter may be gone."""
    if not waiter.cancelled():
        waiter.exception()
