"""The pace at which many runs are woken: no faster than workers claim them, as long as there are workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

NAP_SECONDS, NAP_MAX_SECONDS = 0.005, 0.1  # between two looks after a slice, doubled each time
IDLE_SECONDS = 0.25  # after so long without a claim, check for live workers
IDLE_MAX = 2  # slices in a row that no live worker can claim; then the rest is woken without waiting
BUSY_SECONDS = 5.0  # after so long without a claim by live workers, the rest is woken without waiting
PACED_SECONDS = 30.0  # the longest time that one call spends on waiting for workers
AHEAD_SECONDS = 0.5  # one slice holds as many runs as workers claim in this time
SMALLEST = 10  # the fewest waits in one slice


class Pace:
    """Waits between two slices until workers have claimed half of the runs of the last slice.

    Runs are claimed in the order in which they were woken. Twenty thousand woken at once would be before
    every run that is started later. Woken in slices, they let other runs in between. Slow workers make slices
    smaller.

    `pending` counts the runs that no worker has claimed. `served` says whether a live worker could claim any.
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
        self._ahead: int | None = None  # runs that workers claim in AHEAD_SECONDS, if known

    @property
    def is_over(self) -> bool:
        """True when the call has used up its time. The rest is left to the next call."""
        return self._clock() - self._begun >= PACED_SECONDS

    def size(self, limit: int) -> int:
        """Return how many waits the next slice settles."""
        return limit if self._ahead is None else min(limit, max(self._ahead, SMALLEST))

    async def after(self, woken: Sequence[Any]) -> None:
        """Wait until workers have claimed half of these runs."""
        await asyncio.sleep(0)  # other tasks can run in any case
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
        # Measured over all slices: many slots get free at once, so one slice says little.
        self._woken, self._idle = self._woken + len(woken), 0
        seconds = self._clock() - self._begun
        self._ahead = int((self._woken - left) / seconds * AHEAD_SECONDS) if seconds > 0 else None
