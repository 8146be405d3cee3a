"""How fast many runs are woken: no faster than workers take them up, as long as there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

NAP_SECONDS, NAP_MAX_SECONDS = 0.005, 0.1  # between looks, after a slice: twice as long each time
IDLE_SECONDS = 0.25  # when no run of a slice is taken up for so long, perhaps nobody works
IDLE_MAX = 2  # slices in a row that no live worker can take: then the rest is woken without waiting
BUSY_SECONDS = 5.0  # when live workers take none for so long, the rest is woken without waiting, too
PACED_SECONDS = 30.0  # how long one call paces in all
AHEAD_SECONDS = 0.5  # work for so long is in one slice,
SMALLEST = 10  # but never fewer waits than these


class Pace:
    """Waits between two slices until workers have taken up half of the runs of the last one.

    Runs are claimed by the time they were woken. Twenty thousand at once would stand before every run
    that is started after them; one slice at a time they let others in between. Where workers are slow a
    slice is smaller.

    `pending` counts the runs that nobody has taken up; `served` says whether a live worker could take any.
    """

    def __init__(
        self,
        pending: Callable[[Sequence[Any]], Awaitable[int]],
        served: Callable[[Sequence[Any]], Awaitable[bool]],
    ) -> None:
        self._pending, self._served = pending, served
        self._clock = asyncio.get_running_loop().time
        self._begun = self._clock()
        self._idle = self._woken = 0
        self._ahead: int | None = None  # how many runs are taken up in AHEAD_SECONDS, if that is known

    @property
    def is_over(self) -> bool:
        """The call has taken its time: whoever can, leaves the rest to the next one."""
        return self._clock() - self._begun >= PACED_SECONDS

    def size(self, limit: int) -> int:
        """How many waits the next slice settles."""
        return limit if self._ahead is None else min(limit, max(self._ahead, SMALLEST))

    async def after(self, woken: Sequence[Any]) -> None:
        """Wait for workers."""
        await asyncio.sleep(0)  # others have their turn in any case
        if self._idle >= IDLE_MAX or self.is_over:
            self._ahead = None
        elif woken:
            await self._wait(woken)

    async def _wait(self, woken: Sequence[Any]) -> None:
        taken_at = self._clock()
        fewest, served, nap = len(woken), False, NAP_SECONDS
        while (left := await self._pending(woken)) > len(woken) // 2 and not self.is_over:
            if left < fewest:
                fewest, taken_at, self._idle = left, self._clock(), 0
            idle = self._clock() - taken_at
            if idle >= BUSY_SECONDS:
                self._idle = IDLE_MAX
                return
            if idle >= IDLE_SECONDS and not (served := served or await self._served(woken)):
                self._idle += 1
                return
            await asyncio.sleep(nap)
            nap = min(2 * nap, NAP_MAX_SECONDS)
        # Over all slices: slots get free many at once, and one slice tells little.
        self._woken, self._idle = self._woken + len(woken), 0
        seconds = self._clock() - self._begun
        self._ahead = int((self._woken - left) / seconds * AHEAD_SECONDS) if seconds > 0 else None
