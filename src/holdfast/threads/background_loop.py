"""An event loop in a background thread, for sync callers: they submit a coroutine and block for its
result.
"""

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

_all: WeakSet[BackgroundLoop] = WeakSet()
_kept: list[object] = []


class BackgroundLoop:
    """A background event loop. The first call starts it, in a daemon thread that delays no exit.

    After a fork the child starts a loop of its own.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._changing = threading.Lock()
        self._running: _LoopThread | None = None
        self._end: finalize[..., Any] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The current loop, if there is one. It is another one after a close or a fork."""
        running = self._running
        return None if running is None or running.over else running.loop

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Run the coroutine on the loop and wait for its result; with the caller's context unless one is
        given.

        An exception in the waiting thread, such as Ctrl-C, cancels the coroutine.
        """
        if self._running is not None and threading.current_thread() is self._running.thread:
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
            answer = None if self._running is None else self._running.ask(question, context)
            if answer is not None:
                return answer
            try:
                self._running = running = _LoopThread(self._name)
            except RuntimeError as error:  # no more threads, or no new ones this late in an exit
                question.close()
                raise Unavailable(f"app.sync cannot begin its thread: {error}") from error
            # Called when nothing refers to this object any more: the thread itself must not refer to it.
            self._end = finalize(self, running.end)
            # _at_exit ends the loop later: users may call in atexit handlers of their own
            self._end.atexit = False
            answer = running.ask(question, context)
            assert answer is not None
            return answer

    def close(self) -> None:
        """End the loop and cancel its calls; the next call starts another loop."""
        with self._changing:
            running, end = self._running, self._end
            self._running = self._end = None
        if running is not None and end is not None:
            end()
            if running.thread is not threading.current_thread():
                running.thread.join(CLOSE_SECONDS)

    def end(self) -> None:
        """End the loop at the exit of the process, and wait for nothing."""
        if self._running is not None:
            self._running.end()

    def reset_after_fork(self) -> None:
        """Start anew in a forked child: the thread does not exist there.

        The old loop is kept in memory: its open files belong to the parent and must not be closed here.
        """
        _kept.append(self._running)
        if self._end is not None:
            self._end.detach()
        self._begin()


class _LoopThread:
    """One loop and its thread. Every call that it accepts gets an answer."""

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
        """Submit the coroutine and return the future of its result; None when the loop has ended."""
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
            # A SystemExit of one call goes to its caller. It must not end the loop that other calls wait for.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        with suppress(SystemExit, KeyboardInterrupt):
            self.loop.run_until_complete(_cancel_all(self.loop))
        for answer in list(self._answers):
            answer.cancel()  # the call has not ended in time: its caller gets an error
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
        one.reset_after_fork()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
