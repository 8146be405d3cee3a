"""Threads for plain code: a pool that holds up no exit, and a conversation between a thread and a loop.

A plain function cannot be stopped. Who no longer waits for one leaves it; it is counted as a straggler
until it returns, and whatever it still asks for is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, NoReturn
from weakref import WeakSet

from .errors import UsageError

IDLE_SECONDS = 30.0
REFUSED_MAX = 100
REFUSED_SECONDS = 0.1  # what each further refusal takes: code that catches everything must not spin
FAREWELL_SECONDS = 1.0

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

    def value(self) -> Any:
        """What it returned; raises what it raised."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it would hold the frame that holds it
        return self._value


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
        ended = Ended(None)
        if not self._left:
            try:
                ended = Ended(self._context.run(self._work))
            except BaseException as error:  # noqa: BLE001 - it is handed to whoever waits
                ended = Ended(None, error)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: Ended) -> None:
        self._returned = True
        if self._counted and self._stragglers is not None:
            self._stragglers.returned()
        if not self._ended.done():
            self._ended.set_result(ended)


class Talk:
    """A plain function in a thread that asks, and a coroutine that answers: one of them moves at a time.

    This one leaves the loop free while the function runs.
    """

    def __init__(self, pool: Pool, stragglers: Stragglers) -> None:
        self._pool, self._stragglers = pool, stragglers
        self._loop = asyncio.get_running_loop()
        self._word: asyncio.Future[Any] | None = None
        self._words: deque[Any] = deque()
        self._answers: SimpleQueue[tuple[Any, BaseException | None] | None] = SimpleQueue()
        self._thread, self._refused = 0, 0
        self._ended = self._counted = False
        self.over = False

    # In the thread.

    def ask(self, question: Any) -> Any:
        """Put a question and wait for its answer. Once nobody listens: CancelledError."""
        self.check()
        try:
            self._say(question)
        except RuntimeError:  # the loop has closed
            self.over = True
            self._refuse()
        answer = self._answers.get()
        if answer is None:
            self._refuse()
        value, error = answer
        if error is not None:
            try:
                raise error
            finally:
                del error, answer
        return value

    def check(self) -> None:
        """Refuse other threads, for the order of their calls would be chance; and who is left behind."""
        if threading.get_ident() != self._thread:
            raise UsageError(
                "the context of a plain workflow answers in the workflow's own thread: "
                "let other threads return what they find out, and call ctx from the function itself"
            )
        if self.over:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self._refused += 1
        if self._refused > REFUSED_MAX:
            time.sleep(REFUSED_SECONDS)
        raise asyncio.CancelledError("nobody waits for this function any more: return")

    def _run(self, work: Callable[[], Any]) -> None:
        self._thread = threading.get_ident()
        ended = Ended(None)
        if not self.over:
            try:
                ended = Ended(work())
            except BaseException as error:  # noqa: BLE001 - it is handed to whoever listens
                ended = Ended(None, error)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to tell
            self._say(ended)

    def _say(self, word: Any) -> None:
        self._loop.call_soon_threadsafe(self._listen, word)

    # On the loop.

    def begin(self, work: Callable[[], Any]) -> None:
        """Let the function begin as soon as there is a thread for it, with the caller's context."""
        context = copy_context()
        self._pool.put(lambda: context.run(self._run, work))

    def _listen(self, word: Any) -> None:
        self._ended = isinstance(word, Ended)
        if self._ended and self._counted:
            self._stragglers.returned()
        self._words.append(word)
        if self._word is not None and not self._word.done():
            self._word.set_result(None)

    async def heard(self) -> Any:
        """The next question, or `Ended`."""
        while not self._words:
            self._word = self._loop.create_future()
            await self._word
        return self._words.popleft()

    def answer(self, value: Any, error: BaseException | None = None) -> None:
        """Let the function go on with this answer, or with this exception."""
        self._answers.put((value, error))

    def leave(self) -> None:
        """Listen no more: what the function asks from now on is refused."""
        self.over = True
        self._answers.put(None)
        if self._thread and not self._ended:
            self._counted = True
            self._stragglers.left()


class TurnTalk(Talk):
    """A talk in which the loop stands still while the function runs: what happens is always the same."""

    def __init__(self, pool: Pool, stragglers: Stragglers) -> None:
        super().__init__(pool, stragglers)
        self._said: SimpleQueue[Any] = SimpleQueue()

    def _say(self, word: Any) -> None:
        self._said.put(word)

    async def heard(self) -> Any:
        if not self._words:
            self._listen(self._said.get())
        return self._words.popleft()

    def leave(self) -> None:
        self.over = True
        self._answers.put(None)
        with contextlib.suppress(Empty):
            while not self._ended:
                self._listen(self._said.get(timeout=FAREWELL_SECONDS))
        if not self._ended:
            self._stragglers.left()
