"""Even pace: at most so many calls a second, without bursts."""

from __future__ import annotations

import asyncio

from holdfast.world import World


class Pace:
    """The turns of calls, at least `1 / rate` seconds apart. Time that was lost is not made up for."""

    def __init__(self, world: World, rate: int) -> None:
        self._world, self._interval = world, 1 / rate
        self._next_at = world.monotonic() + self._interval

    def begin(self, seconds: float) -> None:
        """Let the next turn come after so many seconds."""
        self._next_at = self._world.monotonic() + seconds

    async def turn(self) -> None:
        """Wait for the next turn."""
        now = self._world.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self._interval
        if at > now:
            await asyncio.sleep(at - now)
