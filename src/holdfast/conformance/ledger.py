"""The ledger: steps of the worker report here that they run, over plain HTTP and outside of the protocol.

A case can hold the answer, so that the step runs for as long as the case needs; or let the step fail.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, NamedTuple

LEDGER = "/conformance/ledger/"
HOLD_SECONDS = 60.0  # no step is held for longer
RETURN, FAIL, FATAL = 204, 500, 422  # statuses of an answer: what the step is to do


class Call(NamedTuple):
    """One execution of the function of a step."""

    run: Any
    step: Any
    key: Any
    at: float


class Ledger:
    """The ledger of one run and its children."""

    def __init__(self, url: str, name: str) -> None:
        self.url = f"{url}{LEDGER}{name}"
        self.calls: list[Call] = []
        self._answers: dict[str, list[int]] = {}
        self._held: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._holding: set[str] = set()

    def of(self, step: str) -> list[Call]:
        """Return the executions of a step."""
        return [one for one in self.calls if one.step == step]

    def hold(self, *steps: str) -> None:
        """Hold the steps of these names, at every try, until `let_go`."""
        self._holding.update(steps)

    def let_go(self, *steps: str) -> None:
        """Let held steps return, now and later; without names all of them."""
        for step in steps or tuple(self._holding):
            self._held[step].set()

    def answer(self, step: str, *statuses: int) -> None:
        """Answer the first tries of a step with these statuses, and later ones with RETURN."""
        self._answers[step] = list(statuses)

    async def called(self, body: Any, at: float) -> tuple[int, str]:
        """Note an execution; return the status and the text of the answer when the step may end."""
        said = body if isinstance(body, dict) else {}
        call = Call(said.get("run"), said.get("step"), said.get("key"), at)
        self.calls.append(call)
        name = str(call.step)
        statuses = self._answers.get(name)
        status = statuses.pop(0) if statuses else RETURN
        if name in self._holding:
            async with asyncio.timeout(HOLD_SECONDS):
                await self._held[name].wait()
        return status, "" if status == RETURN else f"the ledger lets {name} fail"
