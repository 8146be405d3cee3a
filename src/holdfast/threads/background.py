"""An event loop in a thread of its own, for callers that have none: they hand it a call and block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: finalize[..., Any] | None = None

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Run it on the loop, with the caller's context unless one is given, and wait for what it comes to.

        Whoever is interrupted here has given the call up: it is cancelled there.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a blocking call on the event loop that would have to answer it: await the app itself here"
            )
        with self._changing:
            # Under the lock, or the loop may close between being found and being told.
            loop = self._running()
            answer = (context or copy_context()).run(asyncio.run_coroutine_threadsafe, work(), loop)
        try:
            return answer.result()
        except CancelledError:
            raise Unavailable("app.sync was closed while this call waited for its answer") from None
        except BaseException:
            answer.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_main, args=(self._loop,), name=self._name, daemon=True)
            # When nobody holds this any more, and at exit: the thread itself must not hold it.
            self._end = finalize(self, _stop, self._loop)
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """End the loop with all that it is at; the next call begins another."""
        with self._changing:
            loop, thread, end = self._loop, self._thread, self._end
            self._loop = self._thread = self._end = None
        if loop is not None and thread is not None and end is not None:
            end()
            if thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS)

    def left_behind(self) -> None:
        """In a child: the thread is not there. What the loop holds open is the parent's, and must stay so."""
        _kept.append(self._loop)
        if self._end is not None:
            self._end.detach()
        self._begin()


def _main(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all(loop))
    finally:
        loop.close()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
    await loop.shutdown_asyncgens()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(loop.stop)


def _in_child() -> None:
    for one in list(_all):
        one.left_behind()


os.register_at_fork(after_in_child=_in_child)
