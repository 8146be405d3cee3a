"""A pool of threads for sync functions, and calls into it that a coroutine awaits and may abandon."""

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
    """A pool of at most `threads` threads: started when needed, used again, ended after IDLE_SECONDS idle.

    They are daemon threads that the interpreter does not join at its exit: a function that never returns
    must not keep its process alive.
    """

    def __init__(self, threads: int, name: str) -> None:
        if threads < 1:
            raise UsageError(f"threads is {threads}: give 1 or more")
        self._threads_max, self._name = threads, name
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._news = threading.Condition(threading.Lock())
        self._queue: deque[Callable[[], None]] = deque()
        self._threads = self._idle = self._made = self._kept = 0

    def put(self, work: Callable[[], None]) -> None:
        """Run `work` as soon as a thread is free. `work` should not raise: its thread ends then, and another
        one takes its place. RuntimeError when no thread can be started.
        """
        with self._news:
            if self._idle > len(self._queue):
                self._news.notify()
            elif self._threads < self._threads_max:
                # before the append: a caller that gets the RuntimeError may put the same work again
                self._add()
            self._queue.append(work)

    def _add(self) -> None:
        self._made += 1
        threading.Thread(target=self._main, name=f"{self._name}-{self._made}", daemon=True).start()
        self._threads += 1

    def keep(self, count: int) -> None:
        """Add to the number of threads that stragglers hold; `count` may be negative."""
        with self._news:
            self._kept += count

    @property
    def exhausted(self) -> bool:
        """True when stragglers hold all threads."""
        return self._kept >= self._threads_max

    def _main(self) -> None:
        try:
            while (work := self._next()) is not None:
                work()
                del work  # otherwise an idle thread would keep the last run in memory
        except BaseException:
            with self._news:
                self._threads -= 1
                if self._queue:  # nobody else may come for it
                    self._add()
            raise

    def _next(self) -> Callable[[], None] | None:
        with self._news:
            self._idle += 1
            has_work = self._news.wait_for(lambda: self._queue, IDLE_SECONDS)
            self._idle -= 1
            if has_work:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def reset_after_fork(self) -> None:
        """Start empty in a forked child: the threads do not exist there, and one of them may have held the
        lock at the fork.
        """
        self._begin()


def _in_child() -> None:
    for pool in list(_pools):
        pool.reset_after_fork()


os.register_at_fork(after_in_child=_in_child)


class Stragglers:
    """The number of sync functions that nobody waits for any more and that have not returned.

    It is changed on the event loop only.
    """

    def __init__(self, returned: Callable[[], None]) -> None:
        self._returned = returned
        self.count = 0

    def left(self, pool: Pool) -> None:
        """Count one more, in a thread of this pool."""
        self.count += 1
        pool.keep(1)

    def returned(self, pool: Pool) -> None:
        """Count one less: the function has returned."""
        self.count -= 1
        pool.keep(-1)
        self._returned()


class CallResult:
    """The value that a sync function returned, or the exception that it raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: BaseException | None = None) -> None:
        self._value, self._error = value, error

    @classmethod
    def of(cls, work: Callable[[], Any]) -> CallResult:
        """Call the function in this thread."""
        try:
            return cls(work())
        except BaseException as error:  # noqa: BLE001 - it is handed to the waiting caller
            return cls(None, _raisable(error))

    def value(self) -> Any:
        """Return the value, or raise the exception."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise the exception and this frame would refer to each other
        return self._value


def _raisable(error: BaseException) -> BaseException:
    """Return an exception that may be raised on an event loop.

    KeyboardInterrupt, GeneratorExit and StopIteration would end the loop or the coroutine there, so they are
    wrapped. A KeyboardInterrupt of the main thread is a person's Ctrl-C and stays.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        return error
    if not isinstance(error, (KeyboardInterrupt, GeneratorExit, StopIteration)):
        return error
    told = RuntimeError(f"a sync function raised {type(error).__name__}")
    told.__cause__ = error
    return told


class ThreadCall:
    """A call of a sync function in a thread of a pool, which a coroutine awaits."""

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
        self._ended: asyncio.Future[CallResult] = self._loop.create_future()
        self._begun = self._left = self._counted = self._returned = False

    async def done(self) -> Any:
        """Run the function and return its value or raise its exception. A cancel leaves the function
        behind.
        """
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
        """Run the function, in the thread."""
        self._begun = True
        ended = CallResult(None) if self._left else self._context.run(CallResult.of, self._work)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: CallResult) -> None:
        self._returned = True
        if self._counted and self._stragglers is not None:
            self._stragglers.returned(self._pool)
        if not self._ended.done():
            self._ended.set_result(ended)
