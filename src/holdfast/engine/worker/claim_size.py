"""The size of a worker's next claim: how many runs, how many crashed ones, how many bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.records import Ask

from .crash_quota import YOUNG, crashed_quota

if TYPE_CHECKING:
    from .held_run import HeldRun
    from .worker import Worker

LITTLE_BYTES = MIB // 4  # for a worker that holds many bytes of values: values of small runs still come
FAILURES_MAX = 6  # failed claims that are counted: 4 ** 6 is more than any worker has slots


class ClaimSize:
    """The size of the next claim. It falls with each failed claim, and recovers with each answered one."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._failures = 0
        # a reference, or the task may be garbage collected
        self._refreshing: asyncio.Task[None] | None = None

    def ask(self, types: tuple[str, ...], limit: int) -> Ask:
        """Return the next claim, for at most `limit` runs.

        After each failed claim it is a quarter, in the end one run without its values: that run is then
        leased, and reading it alone shows whether it made the claims fail.
        """
        worker = self._worker
        wanted = limit >> (2 * self._failures)
        size = LITTLE_BYTES if worker.loads.full else BATCH_BYTES
        return Ask(
            worker=worker.id,
            types=types,
            limit=wanted or 1,
            lease_seconds=worker.lease_seconds,
            tenants=worker.tenants,
            runtime=worker.runtime,
            crashed=self._crashed_quota(),
            bytes=size if wanted else 0,
        )

    def answered(self) -> None:
        """Note that a claim was answered."""
        self._failures = max(0, self._failures - 1)

    def failed(self) -> None:
        """Note that a claim failed, or took too long."""
        self._failures = min(self._failures + 1, FAILURES_MAX)

    def watch(self, execution: HeldRun, ring: Callable[[], None]) -> None:
        """Wake the claim loop when a crashed run that begins now allows further ones: soon after it began,
        and when the store knows that the run has survived a lease time.
        """
        later, lease_seconds = asyncio.get_running_loop().call_later, self._worker.lease_seconds
        later(YOUNG * lease_seconds, ring)
        later(lease_seconds, self._survived, execution, ring)

    def _survived(self, execution: HeldRun, ring: Callable[[], None]) -> None:
        if self._worker.leases.held.get(execution.claim.id) is execution:
            self._refreshing = self._worker.world.spawn(self._told(ring), "holdfast-survived")

    async def _told(self, ring: Callable[[], None]) -> None:
        await self._worker.leases.refresh()
        ring()

    def _crashed_quota(self) -> tuple[int, ...]:
        held = self._worker.leases.held.values()
        crashed = [(one.suspect, one.lease_clock) for one in held if one.suspect]
        return crashed_quota(self._worker.slots, [(n, clock.age, clock.forgiven) for n, clock in crashed])
