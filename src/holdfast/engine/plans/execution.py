"""One held run of a plan: the current row, its handler, the outcome as data, the commit, the next row."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.bounds import RUN_BYTES
from holdfast.codec import plain as plain_codec
from holdfast.engine import outcome as ends
from holdfast.engine.drive import Drive
from holdfast.engine.failures import text
from holdfast.engine.held import CLEANUP_SECONDS, UNWIND_SECONDS
from holdfast.engine.journal import Journal, Written
from holdfast.engine.lease_clock import LeaseClock, NotBegun, confirm
from holdfast.engine.outcome import Why
from holdfast.engine.record import Record, memory_bytes
from holdfast.engine.steps import Scope
from holdfast.engine.turns import TROUBLE_SECONDS
from holdfast.errors import BadValue, RunOverdue, StoreError, UnknownRun
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import SECOND, Answer, Claim, Held, Instant, Lease, Step, StepWrite, Verdict
from holdfast.sealing.envelope import shut

from .finish import End, NoHandler, NoRows, finish
from .outcomes import Completed, Dead, Retry, Waiting
from .task import PlanTask

if TYPE_CHECKING:
    from holdfast.engine.worker import Worker

    from .plan import Handler, Plan

T = TypeVar("T")

log = safe_logger("holdfast.run")

OUTCOMES = (Completed, Waiting, Retry, Dead)
CURRENT = frozenset({StepStatus.PENDING, StepStatus.READY, StepStatus.RUNNING})  # as stored, and as shown


class PlanExecution:
    """A plan's run while this worker holds it."""

    __slots__ = (
        "_begun",
        "_clock_at_claim",
        "_drive",
        "_stop",
        "_unwinding",
        "attempt",
        "begun_at",
        "claim",
        "codec",
        "crashes",
        "ended_as",
        "ending",
        "journal",
        "lease_clock",
        "plan",
        "record",
        "rows",
        "scope",
        "step",
        "worker",
        "world",
    )

    def __init__(self, claim: Claim, plan: Plan, worker: Worker, claimed_at: float) -> None:
        self.claim, self.plan, self.worker, self.world = claim, plan, worker, worker.world
        self.lease_clock = LeaseClock(self.world, claimed_at, worker.lease_seconds)
        self.record = Record(claim, len(claim.steps))  # nothing waits while it is held: for the journal only
        self.journal = Journal(
            claim, self.record, worker.committer, self.world, self.lease_clock, self._verdict
        )
        self.rows: dict[str, Step] = {step.key: step for step in claim.steps}
        self.attempt, self.crashes = claim.attempt, claim.crashes
        self.ended_as, self.ending = "", False
        self._clock_at_claim = claim.lease_until - int(worker.lease_seconds * SECOND)
        self._stop: ends.Stopped | None = None
        self._drive: Drive | None = None
        self._unwinding: asyncio.TimerHandle | None = None
        self._begun = False
        self.step: Step | None = None  # the current one
        self.scope = Scope("")  # what its handler says
        self.codec = plain_codec  # of its output
        self.begun_at: Instant = 0

    # -- what the worker calls -----------------------------------------------------------------

    async def run(self) -> None:
        """Execute step after step until the run ends, waits, or is no longer ours."""
        if self.lease_clock.over:
            self.ended_as = "not begun: its lease ran out first"
            return
        self.journal.started_at = self.now()
        if self.worker.hooks:
            self.worker.teller.run("run.started", self, status=Status.LEASED)
        try:
            while await finish(self, await self._perform()):
                self._begun = True
        finally:
            self.journal.leave()

    def take(self, claim: Claim) -> None:
        """Go on with all that the run has recorded, which its claim did not bring."""
        self.claim, self.rows = claim, {step.key: step for step in claim.steps}
        self.record.refill(claim)
        if why := shut(claim):
            self.stop(Why.SEALED, why)

    def stop(self, why: Why, reason: str = "", *, unwind_seconds: float = UNWIND_SECONDS) -> None:
        """Unwind the handler: the run was cancelled, lost or paused, or is to be released."""
        if self._stop is None:
            self._stop = ends.Stopped(why, reason)
            if self._drive is not None:
                self._drive.interrupt(None)
                self._limit_unwinding(CLEANUP_SECONDS)
        if why is Why.RELEASED and self._drive is not None:
            self._limit_unwinding(unwind_seconds)

    def lease(self) -> Lease:
        """What renewal says of this run. Called from the renewal thread."""
        return Lease(
            run=self.claim.id,
            tenant=self.claim.tenant,
            fence=self.claim.fence,
            started_at=self.journal.started_at,
            heartbeat=self.lease_clock.beats(),
            survived=self.lease_clock.survived(self.crashes),
            progress=self.journal.take_progress(),
        )

    def news(self, held: Held) -> None:
        """What renewal learnt. A pause is learnt from the commit that ends the step."""
        if held.answer is not Answer.APPLIED:
            self.stop(Why(held.answer), held.reason)

    @property
    def suspect(self) -> int:
        """How often it has crashed since a step last succeeded."""
        return self.crashes

    @property
    def cancelled(self) -> bool:
        """The handler should come to its end."""
        return self._stop is not None

    def now(self) -> Instant:
        """The store's clock, as far as it can be known without asking."""
        return self._clock_at_claim + int((self.world.monotonic() - self.lease_clock.claimed_at) * SECOND)

    # -- one execution of one step -------------------------------------------------------------

    async def _perform(self) -> End:
        unread = await self.worker.loads.read(self, RUN_BYTES) if self.claim.unread else None
        if self.lease_clock.over:
            await confirm(self)
        if self._stop is not None:
            return self._stop
        if unread is not None:
            return unread
        if self._begun and self.worker.draining:
            return ends.Stopped(Why.RELEASED)
        self.step, self.scope, self.begun_at = self._current(), Scope(""), self.now()
        if self.step is None:
            return NoRows()
        try:
            self._check_time()
        except RunOverdue as error:
            return ends.Raised(error)
        handler = self.handler(self.step.key)
        if handler is None:
            return NoHandler(self.step.key)
        if self.plan.stands_in and not self._begun:
            if (why := self._cannot()) is not None:
                return why
            self.worker.versions.begins()
        self.codec = handler.codec
        return await self._call(handler, self.step)

    def handler(self, task: str) -> Handler | None:
        """The handler of a task, of this version of the plan or of another one that is here."""
        return self.worker.versions.handler(self.plan, task)

    def _cannot(self) -> NoHandler | None:
        """Why a run of another version is not begun here: a task is unknown, or a value cannot be read."""
        unknown = self._unknown()
        if unknown is not None:
            return NoHandler(unknown)
        assert self.step is not None
        try:
            task = PlanTask(self, self.step, Scope(""))
            _ = task.params, dict(task.outputs)
        except BadValue as error:
            said = f"a run of {self.plan.type} cannot be read by code of another version: {error}"
            return NoHandler(self.step.key, text(said))
        return None

    def _unknown(self) -> str | None:
        """The first of the remaining tasks that has no handler here."""
        tasks = (one.key for one in self._rest() if one.kind is StepKind.TASK)
        return next((name for name in tasks if self.handler(name) is None), None)

    def _current(self) -> Step | None:
        """The first row that has not succeeded, if it is a task: no worker executes anything else."""
        open_ = (step for step in self._rest() if step.status is not StepStatus.SUCCEEDED)
        step = next(open_, None)
        return step if step is not None and step.kind is StepKind.TASK and step.status in CURRENT else None

    async def _call(self, handler: Handler, step: Step) -> End:
        scope = self.scope = Scope(step.key)
        try:
            self._drive = Drive(self._answer(handler, PlanTask(self, step, scope)))
            value = await self._drive
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            ended: End = ends.Raised(error)
        else:
            ended = value if isinstance(value, OUTCOMES) else Completed(value)
        finally:
            self._drive, scope.over = None, True
            if self._unwinding is not None:
                self._unwinding.cancel()  # it would keep the whole run in memory until it rings
        self._uncancel()
        return self._judged(ended)

    def _judged(self, ended: End) -> End:
        """What a handler comes to while its run is given back is kept, as of a step in code."""
        if self._stop is None or (self._stop.why is Why.RELEASED and isinstance(ended, Completed | Waiting)):
            return ended
        return self._stop

    async def _answer(self, handler: Handler, task: PlanTask) -> Any:
        if handler.is_async:
            return await handler.function(task)
        while True:
            with suppress(NotBegun):
                value = await self.world.thread(
                    self._called, handler, task, stragglers=self.worker.straggling
                )
                return await value if inspect.isawaitable(value) else value  # a lambda around an async call
            await confirm(self)
            self._check_time()

    def _check_time(self) -> None:
        timeout_at = self.claim.timeout_at
        if timeout_at is not None and self.now() >= timeout_at:
            raise RunOverdue(f"run {self.claim.id} has not ended before its timeout")

    def _called(self, handler: Handler, task: PlanTask) -> Any:
        if self.lease_clock.over:
            raise NotBegun  # for a free thread it may have waited long
        return handler.function(task)

    def _uncancel(self) -> None:
        """Whoever cancelled this task meant the handler that is over, not the next."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

    def _limit_unwinding(self, limit_seconds: float) -> None:
        drive = self._drive

        def give_up() -> None:
            if drive is not None and drive is self._drive:
                drive.abandon()

        if self._unwinding is not None:
            self._unwinding.cancel()
        self._unwinding = asyncio.get_running_loop().call_later(limit_seconds, give_up)

    # -- what commits answer -------------------------------------------------------------------

    def _verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        if self.worker.hooks:
            self.worker.teller.steps(self, verdict, sent)
        if verdict.answer is not Answer.APPLIED:
            self.stop(Why(verdict.answer), verdict.reason)

    @property
    def goes_on(self) -> bool:
        """Whether this worker would execute what comes next, as far as the rows are known here."""
        later = (one for one in self._rest() if self.step is None or one.seq > self.step.seq)
        return not self.worker.draining and any(one.kind is StepKind.TASK for one in later)

    def _rest(self) -> Iterator[Step]:
        """The rows from the current one on; most of a long plan is behind it. A row's number is its place."""
        return islice(self.rows.values(), 0 if self.step is None else self.step.seq, None)

    async def go_on(self, verdict: Verdict, done: StepWrite | None = None) -> bool:
        """Take over the row that is current now; one that has succeeded is not asked for again."""
        here = self.step
        assert here is not None
        self.attempt, self.crashes = 1, 0
        if done is not None:
            self.rows[here.key] = msgspec.structs.replace(
                here, status=StepStatus.SUCCEEDED, output=done.output
            )
            self.record.held += memory_bytes(done.output)
        step = verdict.settled[-1] if verdict.settled else None
        if step is None or step.seq != here.seq + (done is not None):
            # What stands between was settled in the same commit; an answer that is repeated may not say.
            await self._read()
            new = tuple(self.rows.values())
        else:
            self.rows[step.key] = step
            new = (step,)
        if why := shut(msgspec.structs.replace(self.claim, steps=new)):
            self.stop(Why.SEALED, why)
        return True

    async def _read(self) -> None:
        try:
            run, tenant = self.claim.id, self.claim.tenant
            steps = await self.patiently(lambda: self.worker.store.steps(run, tenant))
        except UnknownRun:  # deleted: it has been taken from this worker
            self.stop(Why.LOST)
        else:
            self.rows = {step.key: step for step in steps}

    async def patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        """What the store says, as soon as it can be reached."""
        while True:
            try:
                return await read()
            except StoreError as error:
                log.warning("run %s cannot be read, will try again: %s", self.claim.id, error)
                await asyncio.sleep(TROUBLE_SECONDS)
