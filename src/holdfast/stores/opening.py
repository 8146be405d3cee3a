"""Opening a store once, however many calls come first at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from holdfast.errors import Unavailable

END_SECONDS = 5.0  # a close waits no longer for an attempt: its server may never answer


class Opening:
    """The calls of one event loop that need an open store share one attempt to open it, and its outcome."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    async def share(self, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await the attempt that is under way; without one, begin it. A caller that gives up does not end
        it."""
        loop = asyncio.get_running_loop()
        task = self._tasks.get(loop)
        if task is None:
            task = self._tasks[loop] = loop.create_task(attempt())
            task.add_done_callback(self._end)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller is not None and caller.cancelling()):
                raise Unavailable("the store was closed while it was being opened") from None
            raise

    async def end(self) -> None:
        """End the attempts that are under way: one that comes to its end after a close would open the store
        again, and nobody would close it."""
        here, ended = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        for loop, task in tuple(self._tasks.items()):
            if loop is here:
                task.cancel()
                ended.append(task)
                continue
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)
        if ended:
            await asyncio.wait(ended, timeout=END_SECONDS)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task.get_loop(), None)
        if not task.cancelled():
            task.exception()  # read here: every caller may have given up
