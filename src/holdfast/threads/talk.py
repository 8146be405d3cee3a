"""A plain function in its thread talks with a coroutine: it asks, and waits for the answer."""

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

from .pool import Ended, Pool, Stragglers

REFUSED_MAX = 100
REFUSED_SECONDS = 0.1  # what each further refusal takes: code that catches everything must not spin
FAREWELL_SECONDS = 1.0


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
        ended = Ended(None) if self.over else Ended.of(work)
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
            self._stragglers.returned(self._pool)
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
            self._stragglers.left(self._pool)


class TurnTalk(Talk):
    """A talk in which the loop stands still while the function runs: what happens is always the same."""

    def __init__(self, pool: Pool, stragglers: Stragglers) -> None:
        super().__init__(pool, stragglers)
        self._said: SimpleQueue[Any] = SimpleQueue()

    def _say(self, word: Any) -> None:
        self._said.put(word)
        if self._counted:  # the loop no longer stands still for it
            self._loop.call_soon_threadsafe(self._hear_late)

    def _hear_late(self) -> None:
        with contextlib.suppress(Empty):
            while not self._ended:
                self._listen(self._said.get_nowait())

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
            self._counted = True
            self._stragglers.left(self._pool)
            self._hear_late()  # it may have ended in between, and told nobody
