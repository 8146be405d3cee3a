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
        self._threads = self._idle = self._made = 0

    def put(self, work: Callable[[], None]) -> None:
        """Run it as soon as a thread is free. It must not raise."""
        with self._news:
            self._queue.append(work)
            if self._idle >= len(self._queue):
                self._news.notify()
                return
            if self._threads == self._threads_max:
                return
            self._threads += 1
            self._made += 1
            name = f"{self._name}-{self._made}"
        threading.Thread(target=self._main, name=name, daemon=True).start()

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

    def left(self) -> None:
        """One more."""
        self.count += 1

    def returned(self) -> None:
        """One of them has come to its end."""
        self.count -= 1
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
        "_returned",
        "_stragglers",
        "_work",
    )

    def __init__(self, work: Callable[[], Any], stragglers: Stragglers | None) -> None:
        self._work, self._stragglers = work, stragglers
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._begun = self._left = self._counted = self._returned = False

    async def done(self) -> Any:
        """What it returns or raises. Whoever is cancelled here leaves it behind."""
        try:
            ended = await self._ended
        except BaseException:
            self._left = True
            if self._begun and not self._returned and self._stragglers is not None:
                self._counted = True
                self._stragglers.left()
            raise
        return ended.value()

    def run(self) -> None:
        """In the thread."""
        self._begun = True
        ended = Ended(None) if self._left else self._context.run(Ended.of, self._work)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: Ended) -> None:
        self._returned = True
        if self._counted and self._stragglers is not None:
            self._stragglers.returned()
        if not self._ended.done():
            self._ended.set_result(ended)
