"""An event loop in a thread of its own, for callers that have none: they hand it a call and block."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar
from weakref import WeakSet, finalize

from holdfast.errors import Unavailable, UsageError

T = TypeVar("T")

CANCEL_SECONDS = 1.0
CLOSE_SECONDS = 5.0

_all: WeakSet[Background] = WeakSet()
_kept: list[object] = []


class Background:
    """Begun with the first call, a daemon: it holds up no exit. After a fork the child begins its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._changing = threading.Lock()
        self._life: _Life | None = None
        self._end: finalize[..., Any] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that answers now, if one does: another one after a close, a fork, or the exit."""
        life = self._life
        return None if life is None or life.over else life.loop

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Run it on the loop, with the caller's context unless one is given, and wait for what it comes to.

        Whoever is interrupted here has given the call up: it is cancelled there.
        """
        if self._life is not None and threading.current_thread() is self._life.thread:
            raise UsageError(
                "a blocking call on the event loop that would have to answer it: await the app itself here"
            )
        answer = self._asked(work(), context or copy_context())
        try:
            return answer.result()
        except CancelledError:
            raise Unavailable("app.sync was closed while this call waited for its answer") from None
        except BaseException:
            answer.cancel()
            raise

    def _asked(self, question: Coroutine[Any, Any, T], context: Context) -> Future[T]:
        with self._changing:
            answer = None if self._life is None else self._life.ask(question, context)
            if answer is not None:
                return answer
            try:
                self._life = life = _Life(self._name)
            except RuntimeError as error:  # no more threads, or no new ones this late in an exit
                question.close()
                raise Unavailable(f"app.sync cannot begin its thread: {error}") from error
            # When nobody holds this any more: the thread itself must not hold it.
            self._end = finalize(self, life.end)
            self._end.atexit = False  # but after whoever wants to call in his own atexit handler
            answer = life.ask(question, context)
            assert answer is not None
            return answer

    def close(self) -> None:
        """End the loop with all that it is at; the next call begins another."""
        with self._changing:
            life, end = self._life, self._end
            self._life = self._end = None
        if life is not None and end is not None:
            end()
            if life.thread is not threading.current_thread():
                life.thread.join(CLOSE_SECONDS)

    def end(self) -> None:
        """At exit: end the loop, and wait for nothing."""
        if self._life is not None:
            self._life.end()

    def left_behind(self) -> None:
        """In a child: the thread is not there. What the loop holds open is the parent's, and must stay so."""
        _kept.append(self._life)
        if self._end is not None:
            self._end.detach()
        self._begin()


class _Life:
    """One loop and its thread, from begin to end: whoever asks in between is answered."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.over = False
        self._asking = threading.Lock()
        self._answers: set[Future[Any]] = set()
        self._ending = False
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self.loop.close()
            raise

    def ask(self, question: Coroutine[Any, Any, T], context: Context) -> Future[T] | None:
        """Where the answer will be; None when it is over."""
        with self._asking:
            if self.over:
                return None
            answer = context.run(asyncio.run_coroutine_threadsafe, question, self.loop)
            self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        return answer

    def end(self) -> None:
        with self._asking:
            if not self.over:
                self.over = True
                self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        self._ending = True
        self.loop.stop()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ending:
            # What one call raises is told to its caller, and is no reason to end what all others wait for.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        with suppress(SystemExit, KeyboardInterrupt):
            self.loop.run_until_complete(_cancel_all(self.loop))
        for answer in list(self._answers):
            answer.cancel()  # it has not ended in time: whoever waits for it is told so
        self.loop.close()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
    await loop.shutdown_asyncgens()


def _at_exit() -> None:
    for one in list(_all):
        one.end()


def _in_child() -> None:
    for one in list(_all):
        one.left_behind()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
