"""The reading of large records: in pages, under the fence, as much at a time as a worker has memory for.

A claim brings the values of most runs. The others are read here before their code begins. A small record is
read at once. A large one waits while the worker reads or holds other large ones; after some seconds its run
is given back to the queue, so that another worker can take it and small runs keep their slots.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.bounds import BATCH_BYTES, MIB
from holdfast.contract import START
from holdfast.engine import outcome as ends
from holdfast.engine.code.record import OUTCOMES, step_bytes
from holdfast.engine.outcome import StopReason
from holdfast.errors import HistoryFull, RecordUnreadable
from holdfast.escaping import safe_logger
from holdfast.lifecycle import WAITS, StepKind
from holdfast.records import Answer, Claim, Lease, Loaded, Step, Verdict

from .chores import TROUBLE_SECONDS

if TYPE_CHECKING:
    from .held_run import HeldRun
    from .worker import Worker

log = safe_logger("holdfast.run")
_LOST = Loaded(answer=Answer.LOST)

HELD_BYTES = 128 * MIB  # memory for recorded values, above which a worker reads no further large record
LARGE_MIN = 2  # number of large runs that it holds at once, however large they are
PEEK_BYTES = MIB  # a record up to this size is small
PATIENCE_SECONDS = 2.0  # time that a large run waits for memory before it is given back
AGAIN_SECONDS = 2.0  # delay with which it is given back
READ_TRIES = 8  # tries of one page, each smaller than the one before, while the store answers other calls
READERS = 4  # small records that are read at the same time

Problem = ends.Raised | ends.Stopped


class Loads:
    """The reader of records of runs whose claim came without their values."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._store = worker, worker.store
        self._peeking = asyncio.Semaphore(READERS)
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def full(self) -> bool:
        """True when the worker holds so many values that its next claim asks for few."""
        return self._crowded(None)

    def freed(self) -> None:
        """Note that a run and its memory were released."""
        self._freed.set()

    async def read(self, run: HeldRun, bytes_max: int) -> Problem | None:
        """Read the params and steps of a run. Return None, or the outcome when they cannot be read."""
        async with self._peeking:
            first = await self._page(lease_of(run.claim), START, PEEK_BYTES)
        if isinstance(first, RecordUnreadable) or first.answer is not Answer.APPLIED or not first.more:
            return await self._take(run, bytes_max, first)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as patience, self._turn:
                await self._room(run)
                patience.reschedule(None)
                return await self._take(run, bytes_max, await self._page(lease_of(run.claim), START))
        except TimeoutError:
            said = "this worker reads or holds other large runs, and has no room for this one"
            return ends.Stopped(StopReason.FULL, said)

    async def _room(self, run: HeldRun) -> None:
        while self._crowded(run):
            self._freed.clear()
            await self._freed.wait()

    def _crowded(self, run: HeldRun | None) -> bool:
        held = [one.record.memory for one in self._worker.leases.held.values() if one is not run]
        return sum(held) >= HELD_BYTES and sum(size > PEEK_BYTES for size in held) >= LARGE_MIN

    async def _take(self, run: HeldRun, bytes_max: int, page: Loaded | RecordUnreadable) -> Problem | None:
        """Read the further pages, and hand all to the run."""
        steps: dict[str, Step] = {}
        claim, size = run.claim, 0
        while True:
            if isinstance(page, RecordUnreadable):
                return ends.Raised(page)
            if page.answer is not Answer.APPLIED:
                return ends.Stopped(StopReason(page.answer), page.reason)
            if page.params is not None:
                claim = msgspec.structs.replace(claim, params=page.params, labels_json=page.labels_json)
            for step in page.steps:
                # A wait that was settled meanwhile is read again at its new place.
                before = steps.pop(step.key, None)
                size += step_bytes(step) - (0 if before is None else step_bytes(before))
                steps[step.key] = step
            if size > bytes_max:
                said = f"the run holds more than {bytes_max:,} bytes of recorded values, the limit"
                return ends.Raised(HistoryFull(f"{said}: end it earlier with ctx.continue_as(…)"))
            if not page.more or run.stopped:
                run.take(msgspec.structs.replace(claim, steps=tuple(steps.values()), unread=False))
                return None
            page = await self._page(lease_of(claim), page.steps[-1].seq)

    async def news(self, lease: Lease, known: int) -> tuple[Loaded, list[Step]]:
        """Read the waits that were settled with seq > known and were too large for an answer."""
        steps, after = list[Step](), known
        while True:
            page = await self._page(lease, after)
            if isinstance(page, RecordUnreadable):
                log.warning("run %s: its waits cannot be read: %s", lease.run, page)
                return _LOST, []
            if page.answer is not Answer.APPLIED:
                return page, []
            steps += [step for step in page.steps if has_waited(step) and step.status in OUTCOMES]
            if not page.more:
                return page, steps
            after = page.steps[-1].seq

    async def completed(self, lease: Lease, known: int, verdict: Verdict) -> Verdict:
        """Return the verdict with the waits that were too large for it. Raises nothing: the run waits for
        this.
        """
        try:
            news, steps = await self.news(lease, known)
        except Exception:
            log.exception("run %s: the engine failed to read its waits", lease.run)
            news, steps = _LOST, []
        seq = max([verdict.seq, *(step.seq for step in steps)])
        return msgspec.structs.replace(
            verdict, answer=news.answer, reason=news.reason, settled=tuple(steps), seq=seq, more=False
        )

    async def _page(self, lease: Lease, after: int, size: int = BATCH_BYTES) -> Loaded | RecordUnreadable:
        """Read one page, as soon as the store can be reached; a smaller one after each failure."""
        tries, delay = 0, 0.05
        while True:
            try:
                return await self._store.load(lease, after, size)
            except Exception as error:  # noqa: BLE001 - whatever a row does to its reader, the others go on
                if await self._answers(lease):
                    tries, size = tries + 1, size // 8
                if tries >= READ_TRIES:
                    return RecordUnreadable(
                        f"the record of run {lease.run} cannot be read, after {tries} attempts: {error}"
                    )
                log.warning("run %s cannot be read, will retry: %s", lease.run, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, TROUBLE_SECONDS)

    async def _answers(self, lease: Lease) -> bool:
        """Return True when the store can be reached: if not, the run is not at fault."""
        try:
            await self._store.due((), tenants=(lease.tenant,))
        except Exception:  # noqa: BLE001 - whatever it is, it says nothing about the run
            return False
        return True


def has_waited(step: Step) -> bool:
    """Return True when the step is a wait. A child that was only started is none."""
    return step.kind in WAITS and (step.kind is not StepKind.CHILD or step.waits > 0)


def lease_of(claim: Claim) -> Lease:
    """Return the lease that names a held run."""
    return Lease(run=claim.id, tenant=claim.tenant, fence=claim.fence)
