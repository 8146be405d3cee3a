"""Large records of held runs: read in pages, under the fence, as much at a time as a worker has room for.

A claim brings the values of most runs. Those of a large run are read here before its code begins, one run
at a time. A worker that already holds many bytes of recorded values waits a moment, and then gives the run
back for a few seconds, so that another worker can take it and small runs keep their slots.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.errors import HistoryFull, RecordUnreadable, StoreError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import WAITS
from holdfast.records import Claim, Lease, Loaded, Step, Verdict
from holdfast.rooms.records import START

from . import outcome as ends
from .record import OUTCOMES, step_bytes
from .turns import TROUBLE_SECONDS

if TYPE_CHECKING:
    from .held import HeldRun
    from .worker import Worker

log = safe_logger("holdfast.run")

HELD_BYTES = 128 * MIB  # recorded values that a worker holds before it waits with the next large run
PATIENCE_SECONDS = 2.0  # how long a large run waits for room before it is given back,
AGAIN_SECONDS = 2.0  # and for how long it is given back
READ_TRIES = 8  # of one page, each smaller than the one before, while the store answers other calls
NO_ROOM = "full: "  # how the reason begins for which a run is given back


class Loads:
    """The large records of all runs that a worker holds."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._store = worker, worker.store
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def full(self) -> bool:
        """No further large run is read now."""
        held = self._worker.leases.held.values()
        return sum(run.record.held for run in held) >= HELD_BYTES

    def freed(self) -> None:
        """A run was let go of, and what it held."""
        self._freed.set()

    async def read(self, run: HeldRun, bytes_max: int) -> ends.Raised | ends.Stopped | None:
        """Give the run its params and steps; or answer how it ends, since that cannot be done."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as patience, self._turn:
                await self._room()
                patience.reschedule(None)
                return await self._read(run, bytes_max)
        except TimeoutError:
            said = f"this worker holds {HELD_BYTES // MIB} MiB of recorded values, and has no room for more"
            return ends.Stopped(f"{NO_ROOM}{said}")

    async def _room(self) -> None:
        while self.full:
            self._freed.clear()
            await self._freed.wait()

    async def _read(self, run: HeldRun, bytes_max: int) -> ends.Raised | ends.Stopped | None:
        steps: dict[str, Step] = {}
        claim, after, size = run.claim, START, 0
        while True:
            page = await self._page(lease_of(run.claim), after)
            if isinstance(page, RecordUnreadable):
                return ends.Raised(page)
            if page.answer != "applied":
                return ends.Stopped(page.answer)
            if page.params is not None:
                claim = msgspec.structs.replace(claim, params=page.params, labels_json=page.labels_json)
            for step in page.steps:
                steps.pop(step.key, None)  # a wait that was settled meanwhile is read again, at its new place
                steps[step.key] = step
                after, size = step.seq, size + step_bytes(step)
            if size > bytes_max:
                said = f"the run holds more than {bytes_max:,} bytes of recorded values, the limit"
                return ends.Raised(HistoryFull(f"{said}: end it earlier with ctx.continue_as(…)"))
            if not page.more or run.cancelled:
                run.take(msgspec.structs.replace(claim, steps=tuple(steps.values()), unread=False))
                return None

    async def news(self, lease: Lease, known: int) -> tuple[str, list[Step]]:
        """What became of the run, and the waits settled with seq > known that no answer could bring."""
        steps, after = list[Step](), known
        while True:
            page = await self._page(lease, after)
            if isinstance(page, RecordUnreadable):
                log.warning("run %s: what it waits for cannot be read: %s", lease.run, page)
                return "lost", []
            if page.answer != "applied":
                return page.answer, []
            steps += [step for step in page.steps if step.kind in WAITS and step.status in OUTCOMES]
            if not page.more:
                return "applied", steps
            after = page.steps[-1].seq

    async def completed(self, lease: Lease, known: int, verdict: Verdict) -> Verdict:
        """A verdict with the waits that were too large for it."""
        answer, steps = await self.news(lease, known)
        seq = max([verdict.seq, *(step.seq for step in steps)])
        return msgspec.structs.replace(verdict, answer=answer, settled=tuple(steps), seq=seq, more=False)

    async def _page(self, lease: Lease, after: int) -> Loaded | RecordUnreadable:
        """One page, as soon as the store can be reached; smaller and smaller ones where one fails."""
        size, tries, delay = BATCH_BYTES, 0, 0.05
        while True:
            try:
                return await self._store.load(lease, after, size)
            except Exception as error:  # noqa: BLE001 - whatever a row does to its reader, the others go on
                if await self._answers(lease):
                    tries, size = tries + 1, size // 8
                if tries >= READ_TRIES:
                    return RecordUnreadable(
                        f"what run {lease.run} has recorded cannot be read, tried {tries} times: {error}"
                    )
                log.warning("run %s cannot be read, will try again: %s", lease.run, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, TROUBLE_SECONDS)

    async def _answers(self, lease: Lease) -> bool:
        """Whether the store can be reached at all: if not, the run is not at fault."""
        try:
            await self._store.due((), tenants=(lease.tenant,))
        except StoreError:
            return False
        return True


def lease_of(claim: Claim) -> Lease:
    """What names a held run."""
    return Lease(run=claim.id, tenant=claim.tenant, fence=claim.fence)
