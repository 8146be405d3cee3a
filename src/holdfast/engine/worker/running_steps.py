"""Running steps: a step that has run for 2 s is written to the store, for people to see.

There is no timer for each step. While the worker holds runs, one timer looks at them all, when the next step
may be due. What is new goes out in one write, at most once in 2 s: short steps cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.contract import RUNNING_BYTES, RUNNING_MAX
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.records import SECOND, Running, RunningStep, moment

if TYPE_CHECKING:
    from .held_run import HeldRun
    from .worker import Worker

log = safe_logger("holdfast.worker")

SHOW_SECONDS = 2.0  # the age at which a step is shown, and the shortest time between two writes
LOOK_SECONDS = 0.25  # the shortest time between two looks
ROWS_MAX = 1000  # runs in one write; the others come with the next one


class RunningSteps:
    """The timer of a worker that shows the steps it executes."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._written_at = -SHOW_SECONDS

    def begin(self) -> None:
        """Look at the held runs from now on, until there are none."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHOW_SECONDS, self._look)

    def end(self) -> None:
        """Stop to look."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()

    def _look(self) -> None:
        held = self._worker.leases.held
        self._timer = None
        if not held:
            return  # the next claim begins it again
        # A step that begins after this look is not due before the next one.
        wait = SHOW_SECONDS
        late: dict[HeldRun, list[RunningStep]] = {}
        for run in held.values():
            due, steps = _old_steps(run)
            wait = min(wait, due)
            if len(late) < ROWS_MAX and any((one.step, one.attempt) not in run.shown for one in steps):
                late[run] = steps
        if late and self._writing is None:
            left = self._written_at + SHOW_SECONDS - self._worker.world.monotonic()
            if left <= 0:
                self._writing = self._worker.world.spawn(self._write(late), "holdfast-show-running")
            else:
                wait = min(wait, left)
        self._timer = asyncio.get_running_loop().call_later(max(wait, LOOK_SECONDS), self._look)

    async def _write(self, late: dict[HeldRun, list[RunningStep]]) -> None:
        self._written_at = self._worker.world.monotonic()
        rows = [
            Running(
                run=run.claim.id, fence=run.claim.fence, started_at=run.journal.started_at, steps=tuple(steps)
            )
            for run, steps in late.items()
        ]
        try:
            written = await self._worker.store.show_running(self._worker.id, rows)
        except StoreError as error:
            log.info("cannot show running steps now, will retry: %s", error)
        else:
            for (run, steps), done in zip(late.items(), written, strict=True):
                if done:
                    run.shown = frozenset((one.step, one.attempt) for one in steps)
        finally:
            self._writing = None


def _old_steps(run: HeldRun) -> tuple[float, list[RunningStep]]:
    """Return the seconds until the next step of a run is due to be shown, and the steps that are: the oldest
    ones, as many as a store keeps.
    """
    now, steps, left = run.now(), list[RunningStep](), RUNNING_BYTES
    for key, attempt, began in _oldest_first(run):
        age = (now - began) / SECOND
        if age < SHOW_SECONDS:
            return SHOW_SECONDS - age, steps
        left -= len(key.encode())
        if steps and left < 0:
            break
        steps.append(RunningStep(step=key, attempt=attempt, started_at=moment(began)))
    return SHOW_SECONDS, steps


def _oldest_first(run: HeldRun) -> Iterator[tuple[str, int, int]]:
    # A dict keeps the order in which its keys were added: a step is added when a try of it begins.
    return ((key, *began) for key, began in islice(run.running.items(), RUNNING_MAX))
