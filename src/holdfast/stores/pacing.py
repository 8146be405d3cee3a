"""How fast many runs are woken: no faster than workers take them up, as long as they do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

NAPS = (0.005, 0.01, 0.02, 0.04, 0.075, 0.1, 0.125, 0.125, 0.25, 0.25)  # seconds between looks, after a slice
IDLE_SECONDS = 0.25  # when no run of a slice is taken up for so long, nobody seems to work
IDLE_MAX = 2  # slices in a row that nobody takes up: then the rest is woken without waiting
PACED_SECONDS = 30.0  # how long one caller waits in all


class Pace:
    """Waits between two slices until workers have taken up half of the runs of the last one.

    Runs are claimed by the time they were woken. Twenty thousand at once would stand before every run
    that is started after them; one slice at a time they let others in between.
    """

    def __init__(self) -> None:
        self._idle, self._left = 0, PACED_SECONDS

    async def after(self, woken: Sequence[T], pending: Callable[[Sequence[T]], Awaitable[int]]) -> None:
        """Wait, for a second at most; `pending` counts those that nobody has taken up."""
        await asyncio.sleep(0)  # others have their turn in any case
        if not woken or self._idle >= IDLE_MAX or self._left <= 0:
            return
        waited = 0.0
        for nap in NAPS:
            left = await pending(woken)
            if left <= len(woken) // 2:
                self._idle = 0
                return
            if left == len(woken) and waited >= IDLE_SECONDS:
                self._idle += 1
                return
            await asyncio.sleep(nap)
            waited, self._left = waited + nap, self._left - nap
