"""What is to be done while things break: plain runs, spread over time, and some that need others."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from .ledger import Entry
from .scene import LOOK_SECONDS, Scene
from .work import CHILDREN, ORDER, PARENT, TRANSFER

STEP_SECONDS = 0.04
CREW_SHARE = 10  # one plan and one parent for so many plain runs


class Load:
    """So many runs of so many steps within so many seconds, plans whose gates are decided, and parents."""

    def __init__(self, at: Scene, runs: int, steps: int, seconds: float) -> None:
        self._runs, self._crew = runs, max(1, runs // CREW_SHARE)
        self._starts = asyncio.create_task(spread(at, runs, steps, seconds))
        self._others = asyncio.create_task(_need_others(at, self._crew, seconds / 2))

    @property
    def total(self) -> int:
        """All runs that there will be, with the children."""
        return self._runs + self._crew * (2 + CHILDREN)

    @property
    def figures(self) -> dict[str, object]:
        crew = self._crew
        return {"runs": self._runs, "plans": crew, "parents": crew, "children": crew * CHILDREN}

    async def started(self) -> None:
        """Wait until all plain runs are started."""
        await asyncio.shield(self._starts)

    async def end(self) -> None:
        """When all has been started; whatever went wrong with it is raised."""
        await self._starts
        self._others.cancel()
        with suppress(asyncio.CancelledError):
            await self._others


async def spread(at: Scene, runs: int, steps: int, seconds: float) -> None:
    """Start plain runs, a few at a time."""
    batch = max(1, runs // 50)
    for started in range(0, runs, batch):
        params = {"steps": steps, "seconds": STEP_SECONDS}
        await at.start(TRANSFER, params, min(batch, runs - started))
        await asyncio.sleep(seconds * batch / runs)


async def _need_others(at: Scene, crew: int, seconds: float) -> None:
    """Start a plan and a parent now and then, and decide at every gate that is open."""
    began, started = time.monotonic(), 0
    while True:
        while started < crew and time.monotonic() - began >= started * seconds / crew:
            started += 1
            await at.start(ORDER, {})
            await at.start(PARENT, {})
        for gate in await at.ask(at.app.approvals):
            await at.book.tell(Entry(kind="decided", run=str(gate.run), step=gate.step, nonce="ada"))
            await at.ask(partial(at.app.approve, gate.run, gate.step, by="ada"))
        await asyncio.sleep(LOOK_SECONDS)
