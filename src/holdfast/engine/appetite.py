"""What a worker's next claim asks for: how many runs, how many of those that crashed, how many bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.records import Ask

from .crashed import crashed_quota

if TYPE_CHECKING:
    from .worker import Worker

LITTLE_BYTES = MIB // 4  # for a worker that holds many bytes of values: those of small runs still come
FAILURES_MAX = 6  # of claims that are counted: 4 ** 6 is more than any worker has slots


class Appetite:
    """It falls with each claim that fails, and comes back with each that is answered."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._failures = 0

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

    def _crashed_quota(self) -> tuple[int, ...]:
        held = self._worker.leases.held.values()
        return crashed_quota(self._worker.slots, [(one.suspect, one.lease_clock.age) for one in held if one.suspect])
