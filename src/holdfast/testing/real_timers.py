"""Timers that fire in real time, in a loop of virtual time: for pauses of a store that the loop waits for."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

IN_REAL_TIME: ContextVar[bool] = ContextVar("holdfast_real_time", default=False)


def in_real_time(context: Context) -> None:
    """Let the timers of this context fire in real time."""
    context.run(IN_REAL_TIME.set, True)  # noqa: FBT003 - it has no other form


class RealTimers:
    """The timers of one loop, first due first. `call_soon`: the loop's own."""

    def __init__(self, call_soon: Callable[..., Any]) -> None:
        self._call_soon = call_soon
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def add(
        self,
        delay: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        loop: asyncio.AbstractEventLoop,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(loop.time() + delay, callback, args, loop, context)

        def fire() -> None:
            if not handle.cancelled():
                self._call_soon(callback, *args, context=context)

        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._numbers), handle, fire))
        return handle

    def seconds(self, most: float) -> float:
        """Return the seconds to the next timer, at most so many."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return min(most, max(0.0, self._timers[0][0] - time.monotonic())) if self._timers else most

    def fire(self) -> bool:
        """Call what is due. Return False when nothing is."""
        fired = False
        while self._timers and self._timers[0][0] <= time.monotonic():
            *_, fire = heapq.heappop(self._timers)
            fire()
            fired = True
        return fired
