"""A check of the leases when a leased run may have been moved: cancelled, paused, rewound or deleted.

The store calls every worker after such a move, and does not say which run it was. The worker reads the states
of its leases; that is cheaper than a renewal. Nothing depends on it: each renewal brings the same news.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import StoreError
from holdfast.escaping import safe_logger

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast.lease")

CHECK_SECONDS = 0.2  # the shortest time between two checks


class LeaseCheck:
    """The checks of one worker: at most five a second, however many runs are moved."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._checked_at = -CHECK_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._again = False  # called during a check, which may have read before that move
        self._during_claim = False  # called while a claim was under way: its runs are not held yet

    def soon(self) -> None:
        """Check the leases soon, if there are any."""
        self._during_claim = self._during_claim or self._worker.leases.claiming
        if self._checking is not None:
            self._again = True
        elif self._timer is None and self._worker.leases.held:
            # Delayed after a recent check, but not left out: that one may have come before this move.
            wait = self._checked_at + CHECK_SECONDS - self._worker.world.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._begin)

    def claim_answered(self) -> None:
        """Check the runs of a claim too, if one of them may have been moved before the answer came."""
        if self._during_claim:
            self._during_claim = False
            self.soon()

    def end(self) -> None:
        """Check no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._checking is not None:
            self._checking.cancel()

    def _begin(self) -> None:
        self._timer, self._checked_at = None, self._worker.world.monotonic()
        self._checking = self._worker.world.spawn(self._check(), "holdfast-lease-check")

    async def _check(self) -> None:
        executions = list(self._worker.leases.held.values())
        try:
            leases = [(one.claim.id, one.claim.fence) for one in executions]
            states = await self._worker.store.lease_states(leases)
            for execution, state in zip(executions, states, strict=True):
                execution.told(state)
        except StoreError as error:
            log.info("cannot read the states of leases now, the next renewal does: %s", error)
        finally:
            self._checking = None
            if self._again:
                self._again = False
                self.soon()
