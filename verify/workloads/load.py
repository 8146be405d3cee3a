"""The load of an experiment: simple runs, started over time, and plans and parents beside them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from holdfast.errors import Conflict, UnknownRun, UnknownStep
from verify.environment.environment import LOOK_SECONDS, Environment
from verify.environment.ledger import Entry

from .workflows import CHILDREN, ORDER, PARENT, TRANSFER

STEP_SECONDS = 0.04
RELATED_SHARE = 10  # one plan and one parent for this number of simple runs


class Load:
    """A number of simple runs within some seconds, plans whose gates are decided, and parents.

    `may_lose`: the store may lose a gate between the look at it and its decision.
    """

    def __init__(
        self, env: Environment, runs: int, steps: int, seconds: float, *, may_lose: bool = False
    ) -> None:
        self._runs, self._related = runs, max(1, runs // RELATED_SHARE)
        self._starts = asyncio.create_task(spread(env, runs, steps, seconds))
        self._others = asyncio.create_task(_need_others(env, self._related, seconds / 2, may_lose=may_lose))

    @property
    def total(self) -> int:
        """Return the number of all runs, with the children."""
        return self._runs + self._related * (2 + CHILDREN)

    @property
    def figures(self) -> dict[str, object]:
        related = self._related
        return {"runs": self._runs, "plans": related, "parents": related, "children": related * CHILDREN}

    async def started(self) -> None:
        """Wait until all simple runs are started."""
        await asyncio.shield(self._starts)

    async def end(self) -> None:
        """Wait until all runs are started, and raise an error of the starts."""
        await self._starts
        self._others.cancel()
        with suppress(asyncio.CancelledError):
            await self._others


async def spread(env: Environment, runs: int, steps: int, seconds: float) -> None:
    """Start simple runs, a few at a time."""
    batch = max(1, runs // 50)
    for started in range(0, runs, batch):
        params = {"steps": steps, "seconds": STEP_SECONDS}
        await env.start(TRANSFER, params, min(batch, runs - started))
        await asyncio.sleep(seconds * batch / runs)


async def _need_others(env: Environment, related: int, seconds: float, *, may_lose: bool) -> None:
    """Start a plan and a parent now and then, and approve every open gate."""
    began, started = time.monotonic(), 0
    while True:
        while started < related and time.monotonic() - began >= started * seconds / related:
            started += 1
            await env.start(ORDER, {})
            await env.start(PARENT, {})
        for gate in await env.ask(env.app.approvals):
            await env.ledger.write(Entry(kind="decided", run=str(gate.run), step=gate.step, nonce="ada"))
            with suppress(*((Conflict, UnknownRun, UnknownStep) if may_lose else ())):
                await env.ask(partial(env.app.approve, gate.run, gate.step, by="ada"))
        await asyncio.sleep(LOOK_SECONDS)
