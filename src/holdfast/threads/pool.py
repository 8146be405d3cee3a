"""A pool of threads for plain functions, and errands into it: who no longer waits for one leaves it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any
from weakref import WeakSet

from holdfast.errors import UsageError

IDLE_SECONDS = 30.0

_pools: WeakSet[Pool] = WeakSet()


class Pool:
    """At most so many threads, begun when needed, used again, ended when idle for long.

    Daemons, and none that the interpreter joins at its exit: a function that never returns must not hold
    its process.
    """

    def __init__(self, threads: int, name: str) -> None:
        if threads < 1:
            raise UsageError(f"threads is {threads}: at least 1")
        self._threads_max, self._name = threads, name
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._news = threading.Condition(threading.Lock())
        self._queue: deque[Callable[[], None]] = deque()
        self._threads = self._idle = self._made = self._kept = 0

    def put(self, work: Callable[[], None]) -> None:
        """Run it as soon as a thread is free. It must not raise. RuntimeError: no thread is to be had."""
        with self._news:
            if self._idle > len(self._queue):
                self._news.notify()
            elif self._threads < self._threads_max:
                self._add()  # before it is queued: whoever is told that it failed may come again with it
            self._queue.append(work)

    def _add(self) -> None:
        self._made += 1
        threading.Thread(target=self._main, name=f"{self._name}-{self._made}", daemon=True).start()
        self._threads += 1

    def keep(self, count: int) -> None:
        """So many threads more are kept by functions that nobody waits for any more, or fewer."""
        with self._news:
            self._kept += count

    @property
    def exhausted(self) -> bool:
        """All its threads are kept so."""
        return self._kept >= self._threads_max

    def _main(self) -> None:
        while (work := self._next()) is not None:
            work()
            del work  # or an idle thread would keep the last run in memory

    def _next(self) -> Callable[[], None] | None:
        with self._news:
            self._idle += 1
            came = self._news.wait_for(lambda: self._queue, IDLE_SECONDS)
            self._idle -= 1
            if came:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def left_behind(self) -> None:
        """In a child: none of its threads is there, and its lock may be held by one of them for ever."""
        self._begin()


def _in_child() -> None:
    for pool in list(_pools):
        pool.left_behind()


os.register_at_fork(after_in_child=_in_child)


class Stragglers:
    """Plain functions that nobody waits for any more and that have not returned. The event loop counts."""

    def __init__(self, returned: Callable[[], None]) -> None:
        self._returned = returned
        self.count = 0

    def left(self, pool: Pool) -> None:
        """One more, in a thread of this pool."""
        self.count += 1
        pool.keep(1)

    def returned(self, pool: Pool) -> None:
        """One of them has come to its end."""
        self.count -= 1
        pool.keep(-1)
        self._returned()


class Ended:
    """The last word of a talk: what the function returned or raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: BaseException | None = None) -> None:
        self._value, self._error = value, error

    @classmethod
    def of(cls, work: Callable[[], Any]) -> Ended:
        """What came of a plain function, here and now."""
        try:
            return cls(work())
        except BaseException as error:  # noqa: BLE001 - it is handed to whoever waits
            return cls(None, _raisable(error))

    def value(self) -> Any:
        """What it returned; raises what it raised."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it would hold the frame that holds it
        return self._value


def _raisable(error: BaseException) -> BaseException:
    """On an event loop these would not mean what the function did: they end loops and coroutines there.

    But what interrupts the main thread is a person's Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        return error
    if not isinstance(error, (KeyboardInterrupt, GeneratorExit, StopIteration)):
        return error
    told = RuntimeError(f"a plain function raised {type(error).__name__}")
    told.__cause__ = error
    return told


class Errand:
    """A plain function in a thread, for a coroutine that waits for it."""

    __slots__ = (
        "_begun",
        "_context",
        "_counted",
        "_ended",
        "_left",
        "_loop",
        "_pool",
        "_returned",
        "_stragglers",
        "_work",
    )

    def __init__(self, pool: Pool, work: Callable[[], Any], stragglers: Stragglers | None) -> None:
        self._pool, self._work, self._stragglers = pool, work, stragglers
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._begun = self._left = self._counted = self._returned = False

    async def done(self) -> Any:
        """What it returns or raises. Whoever is cancelled here leaves it behind."""
        self._pool.put(self._run)
        try:
            ended = await self._ended
        except BaseException:
            self._left = True
            if self._begun and not self._returned and self._stragglers is not None:
                self._counted = True
                self._stragglers.left(self._pool)
            raise
        return ended.value()

    def _run(self) -> None:
        """In the thread."""
        self._begun = True
        ended = Ended(None) if self._left else self._context.run(Ended.of, self._work)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: Ended) -> None:
        self._returned = True
        if self._counted and self._stragglers is not None:
            self._stragglers.returned(self._pool)
        if not self._ended.done():
            self._ended.set_result(ended)
