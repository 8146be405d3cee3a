"""What a worker's next claim asks for: how many runs, how many of those that crashed, how many bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.records import Ask

from .crashed import YOUNG, crashed_quota

if TYPE_CHECKING:
    from .held import HeldRun
    from .worker import Worker

LITTLE_BYTES = MIB // 4  # for a worker that holds many bytes of values: those of small runs still come
FAILURES_MAX = 6  # of claims that are counted: 4 ** 6 is more than any worker has slots


class Appetite:
    """It falls with each claim that fails, and comes back with each that is answered."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._failures = 0
        self._telling: asyncio.Task[None] | None = None  # held, or it may vanish

    def ask(self, types: tuple[str, ...], limit: int) -> Ask:
        """For at most `limit` runs.

        After a claim that failed for a quarter, in the end for one run and nothing of its values: whatever
        made the claims fail, that run is then leased, and reading it by itself tells whether it was the one.
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
        """A claim was answered."""
        self._failures = max(0, self._failures - 1)

    def failed(self) -> None:
        """A claim failed, or took too long."""
        self._failures = min(self._failures + 1, FAILURES_MAX)

    def watch(self, execution: HeldRun, ring: Callable[[], None]) -> None:
        """Ring when a run that has crashed and begins now leaves room for further ones: soon after its begin,
        and when the store knows that it has survived a lease time.
        """
        later, lease_seconds = asyncio.get_running_loop().call_later, self._worker.lease_seconds
        later(YOUNG * lease_seconds, ring)
        later(lease_seconds, self._survived, execution, ring)

    def _survived(self, execution: HeldRun, ring: Callable[[], None]) -> None:
        if self._worker.leases.held.get(execution.claim.id) is execution:
            self._telling = self._worker.world.spawn(self._told(ring), "holdfast-survived")

    async def _told(self, ring: Callable[[], None]) -> None:
        await self._worker.leases.refresh()
        ring()

    def _crashed_quota(self) -> tuple[int, ...]:
        held = self._worker.leases.held.values()
        crashed = [(one.suspect, one.lease_clock) for one in held if one.suspect]
        return crashed_quota(self._worker.slots, [(n, clock.age, clock.forgiven) for n, clock in crashed])
