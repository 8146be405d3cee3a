"""The end of a lease as its worker knows it, counted in monotonic seconds and without asking the store.

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

from .turns import TROUBLE_SECONDS

if TYPE_CHECKING:
    from .held import HeldRun
    from .stage import Stage

HEARTBEAT_SECONDS = 60.0
KEPT = 2 / 3  # of a lease, that is left at least after a commit which leaves the run leased


class LeaseClock:
    """Until when the lease of one run holds for certain."""

    __slots__ = ("_beat_at", "_until", "_world", "claimed_at", "forgiven", "seconds")

    def __init__(self, world: World, claimed_at: float, seconds: float) -> None:
        self._world, self.claimed_at, self.seconds = world, claimed_at, seconds
        self._beat_at, self._until = claimed_at, claimed_at + seconds
        self.forgiven = False  # the store was told that the run has survived a whole lease time

    @property
    def over(self) -> bool:
        """Whether the lease may have ended."""
        return self._world.monotonic() >= self._until

    @property
    def age(self) -> float:
        """For how many lease times the run has executed here."""
        return (self._world.monotonic() - self.claimed_at) / self.seconds

    def survived(self, crashes: int) -> bool:
        """Whether a renewal is to say that a run which crashed so often has survived a whole lease time."""
        return crashes > 0 and self.age >= 1

    def beats(self) -> bool:
        """Whether a heartbeat row is due now. Called from the renewal thread."""
        now = self._world.monotonic()
        due = now - self._beat_at >= HEARTBEAT_SECONDS
        if due:
            self._beat_at = now
        return due

    def renewed(self, asked_at: float) -> None:
        """A renewal was granted that was asked for then. Called from the renewal thread."""
        self._until = max(self._until, asked_at + self.seconds)

    def committed(self, sent_at: float) -> None:
        """A commit was applied that was sent then: it has renewed a lease that was short."""
        self._until = max(self._until, sent_at + KEPT * self.seconds)


class NotBegun(BaseException):
    """A thread was free too late: the lease may have ended, so the function was not called."""


async def confirm(run: HeldRun, stage: Stage | None = None, key: str = "") -> None:
    """Ask the store whether the run is still held here, as often as it takes to get an answer.

    When this returns, the lease holds, or the run was told to stop: then its stage, if it has one, refuses
    the step. It may have taken long: the caller looks at the run's timeout again.
    """
    while _in_doubt(run):
        await run.worker.leases.refresh()
        if _in_doubt(run):
            await asyncio.sleep(TROUBLE_SECONDS)  # the store cannot be reached
    if stage is not None and stage.closed:
        await stage.refuse(key)


def _in_doubt(run: HeldRun) -> bool:
    return run.lease_clock.over and not run.cancelled
