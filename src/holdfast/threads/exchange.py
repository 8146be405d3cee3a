"""The exchange between a sync function in its thread and a coroutine on the event loop.

The function asks questions and blocks until the coroutine has answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from holdfast.errors import UsageError

from .pool import CallResult, Pool, Stragglers

REFUSED_MAX = 100
REFUSED_SECONDS = 0.1  # pause before each further refusal: code that catches everything must not spin
LEAVE_SECONDS = 1.0


class Exchange:
    """An exchange between a function in a thread, which asks, and a coroutine, which answers.

    Only one of the two runs at a time. Other tasks of the loop run on while the function works.
    """

    def __init__(self, pool: Pool, stragglers: Stragglers) -> None:
        self._pool, self._stragglers = pool, stragglers
        self._loop = asyncio.get_running_loop()
        self._arrival: asyncio.Future[Any] | None = None
        self._messages: deque[Any] = deque()
        self._answers: SimpleQueue[tuple[Any, BaseException | None] | None] = SimpleQueue()
        self._thread, self._refused = 0, 0
        self._ended = self._counted = False
        self.over = False

    # Called in the thread.

    def ask(self, question: Any) -> Any:
        """Ask a question and wait for its answer; CancelledError when nobody waits for the function any
        more.
        """
        self.check()
        try:
            self._send(question)
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
        """Refuse calls of other threads, whose order would be random, and calls after `leave`."""
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
        ended = CallResult(None) if self.over else CallResult.of(work)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            self._send(ended)

    def _send(self, message: Any) -> None:
        self._loop.call_soon_threadsafe(self._receive, message)

    # Called on the loop.

    def begin(self, work: Callable[[], Any]) -> None:
        """Start the function as soon as a thread is free, with the caller's context."""
        context = copy_context()
        self._pool.put(lambda: context.run(self._run, work))

    def _receive(self, message: Any) -> None:
        self._ended = isinstance(message, CallResult)
        if self._ended and self._counted:
            self._stragglers.returned(self._pool)
        self._messages.append(message)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def next_message(self) -> Any:
        """Return the next question, or the CallResult when the function has ended."""
        while not self._messages:
            self._arrival = self._loop.create_future()
            await self._arrival
        return self._messages.popleft()

    def answer(self, value: Any, error: BaseException | None = None) -> None:
        """Let the function continue with this answer, or with this exception."""
        self._answers.put((value, error))

    def leave(self) -> None:
        """Stop answering: further questions of the function are refused."""
        self.over = True
        self._answers.put(None)
        if self._thread and not self._ended:
            self._counted = True
            self._stragglers.left(self._pool)


class LockstepExchange(Exchange):
    """An exchange that blocks the loop while the function runs, so that the order of events is always the
    same.
    """

    def __init__(self, pool: Pool, stragglers: Stragglers) -> None:
        super().__init__(pool, stragglers)
        self._sent: SimpleQueue[Any] = SimpleQueue()

    def _send(self, message: Any) -> None:
        self._sent.put(message)
        if self._counted:  # the loop no longer blocks for this function
            self._loop.call_soon_threadsafe(self._receive_late)

    def _receive_late(self) -> None:
        with contextlib.suppress(Empty):
            while not self._ended:
                self._receive(self._sent.get_nowait())

    async def next_message(self) -> Any:
        if not self._messages:
            self._receive(self._sent.get())
        return self._messages.popleft()

    def leave(self) -> None:
        self.over = True
        self._answers.put(None)
        with contextlib.suppress(Empty):
            while not self._ended:
                self._receive(self._sent.get(timeout=LEAVE_SECONDS))
        if not self._ended:
            self._counted = True
            self._stragglers.left(self._pool)
            self._receive_late()  # the function may have ended in between, when nobody received its message
