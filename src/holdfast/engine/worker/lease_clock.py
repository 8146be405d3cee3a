"""The clock of a lease: the worker's own count of when the lease ends, without asking the store.

A lease is counted from before the call that gave or renewed it: it never ends later here than in the store,
as long as both clocks run alike. A worker that stood still (SIGSTOP, a suspended machine, a blocked event
loop) finds here, before it begins a step, that its lease may have ended. It then asks the store, and begins
nothing before the answer.

Two things cannot be seen here: a store whose wall clock is set forward, and a virtual machine that is paused
together with its clocks. Then a step may begin that another worker has recorded; the fence keeps its result
out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.world import World

from .chores import TROUBLE_SECONDS

if TYPE_CHECKING:
    from holdfast.engine.code.stage import Stage

    from .held_run import HeldRun

HEARTBEAT_SECONDS = 60.0
KEPT = 2 / 3  # share of a lease that is left at least after a commit of a run that stays leased


class LeaseClock:
    """The clock of one run's lease: until when it is certain to hold."""

    __slots__ = ("_beat_at", "_until", "_world", "claimed_at", "forgiven", "seconds")

    def __init__(self, world: World, claimed_at: float, seconds: float) -> None:
        self._world, self.claimed_at, self.seconds = world, claimed_at, seconds
        self._beat_at, self._until = claimed_at, claimed_at + seconds
        self.forgiven = False  # the store knows that the run has survived a whole lease time

    @property
    def over(self) -> bool:
        """True when the lease may have ended."""
        return self._world.monotonic() >= self._until

    @property
    def age(self) -> float:
        """The number of lease times that the run has executed here."""
        return (self._world.monotonic() - self.claimed_at) / self.seconds

    def survived(self, crashes: int) -> bool:
        """Return True when the next renewal should say that a crashed run has survived a whole lease time."""
        return crashes > 0 and self.age >= 1

    def beats(self) -> bool:
        """Return True when a heartbeat row is due now. Called from the renewal thread."""
        now = self._world.monotonic()
        due = now - self._beat_at >= HEARTBEAT_SECONDS
        if due:
            self._beat_at = now
        return due

    def renewed(self, asked_at: float) -> None:
        """Note a renewal that was asked for at this time and granted. Called from the renewal thread."""
        self._until = max(self._until, asked_at + self.seconds)

    def committed(self, sent_at: float) -> None:
        """Note a commit that was sent at this time and applied: it renewed a lease that was short."""
        self._until = max(self._until, sent_at + KEPT * self.seconds)


class NotBegun(BaseException):
    """The function was not called: no thread was free in time, and the lease may have ended."""


async def confirm(run: HeldRun, stage: Stage | None = None, key: str = "") -> None:
    """Ask the store until it answers whether the run is still leased to this worker.

    When this returns, the lease holds, or the run is stopped and its stage refuses the step. This may have
    taken long: the caller checks the run's timeout again.
    """
    while _in_doubt(run):
        await run.worker.leases.refresh()
        if _in_doubt(run):
            await asyncio.sleep(TROUBLE_SECONDS)  # the store cannot be reached
    if stage is not None and stage.closed:
        await stage.refuse(key)


def _in_doubt(run: HeldRun) -> bool:
    return run.lease_clock.over and not run.stopped
