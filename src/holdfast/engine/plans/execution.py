"""The execution of one run of a plan: call the handler of the current row, commit, go on with the next
row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.bounds import RUN_BYTES
from holdfast.codec import untyped
from holdfast.engine import outcome as ends
from holdfast.engine.code.drive import Drive
from holdfast.engine.code.record import Record, memory_bytes
from holdfast.engine.code.scope import SCOPE, Scope
from holdfast.engine.commit.journal import Journal, Written
from holdfast.engine.failures import text
from holdfast.engine.outcome import StopReason
from holdfast.engine.worker.held_record import patiently
from holdfast.engine.worker.held_run import HeldRun
from holdfast.engine.worker.lease_clock import NotBegun, confirm
from holdfast.errors import BadValue, RunOverdue, UnknownRun
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Answer, Claim, Instant, Step, StepWrite, Verdict
from holdfast.sealing.envelope import shut

from .finish import End, NoHandler, NoRows, finish
from .outcomes import Completed, Dead, Retry, Waiting
from .task import PlanTask

if TYPE_CHECKING:
    from holdfast.engine.worker.worker import Worker

    from .plan import Handler, Plan

OUTCOMES = (Completed, Waiting, Retry, Dead)
CURRENT = frozenset({StepStatus.PENDING, StepStatus.READY, StepStatus.RUNNING})  # as stored, and as shown


class PlanExecution(HeldRun):
    """The execution of a plan: one handler per step, in the order of the rows."""

    __slots__ = ("_continued", "begun_at", "codec", "plan", "rows", "scope", "step")

    def __init__(self, claim: Claim, plan: Plan, worker: Worker, claimed_at: float) -> None:
        # A plan has no open wait while it is leased: the record is used by the journal only.
        record = Record(claim, len(claim.steps))
        super().__init__(claim, worker, claimed_at, record)
        self.plan = plan
        self.journal = Journal(claim, record, worker.committer, self.world, self.lease_clock, self._verdict)
        self.rows: dict[str, Step] = {step.key: step for step in claim.steps}
        self._continued = False  # a step was executed under this lease already
        self.step: Step | None = None  # the current one
        self.scope = Scope("")  # effects of its handler
        self.codec = untyped  # the codec of its output
        self.begun_at: Instant = 0

    # -- called by the worker ------------------------------------------------------------------

    async def _execute_once(self) -> bool:
        self._continued = await finish(self, await self._perform())
        return self._continued

    def take(self, claim: Claim) -> None:
        """Continue with the whole record of the run, which its claim did not bring."""
        self.rows = {step.key: step for step in claim.steps}
        super().take(claim)

    # -- one execution of one step -------------------------------------------------------------

    async def _perform(self) -> End:
        unread = await self.worker.loads.read(self, RUN_BYTES) if self.claim.unread else None
        if self.lease_clock.over:
            await confirm(self)
        if self._stop is not None:
            return self._stop
        if unread is not None:
            return unread
        if self._continued and self.worker.draining:
            return ends.Stopped(StopReason.RELEASED)
        self.step, self.scope, self.begun_at = self._current(), Scope(""), self.now()
        if self.step is None:
            return NoRows()
        try:
            self.check_time()
        except RunOverdue as error:
            return ends.Raised(error)
        handler = self.handler(self.step.key)
        if handler is None:
            return NoHandler(self.step.key)
        if self.plan.stands_in and not self._continued:
            if (why := self._cannot()) is not None:
                return why
            self.worker.versions.begins()
        self.codec = handler.codec
        return self._short(self.step) or await self._call(handler, self.step)

    def _short(self, step: Step) -> ends.Stopped | None:
        """Return the stop of a run whose budget may not pay for the step. None: the step may begin."""
        spending, cost_max = self.journal.spending, self.plan.costs.get(step.key, 0)
        if spending is None or spending.allows(cost_max):
            return None
        return ends.Stopped(StopReason.SHORT, step.key, cost_max)

    def handler(self, task: str) -> Handler | None:
        """Return the handler of a task, from this version of the plan or another one that is defined here."""
        return self.worker.versions.handler(self.plan, task)

    def _cannot(self) -> NoHandler | None:
        """Return why a run of another version cannot begin here: an unknown task, or an unreadable value."""
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
        """Return the first of the remaining tasks without a handler here."""
        tasks = (one.key for one in self._rest() if one.kind is StepKind.TASK)
        return next((name for name in tasks if self.handler(name) is None), None)

    def _current(self) -> Step | None:
        """Return the first row that has not succeeded, if it is a task: no worker executes anything else."""
        open_ = (step for step in self._rest() if step.status is not StepStatus.SUCCEEDED)
        step = next(open_, None)
        return step if step is not None and step.kind is StepKind.TASK and step.status in CURRENT else None

    async def _call(self, handler: Handler, step: Step) -> End:
        scope = self.scope = Scope(step.key, self.attempt - self.crashes)
        self.running[step.key] = self.attempt, self.begun_at
        if self.measures is not None and not self._continued:
            self._measure_wait(step)
        token = SCOPE.set(scope)
        try:
            self._drive = Drive(self._answer(handler, PlanTask(self, step, scope)))
            value = await self._drive
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is its outcome
            ended: End = ends.Raised(error)
        else:
            ended = value if isinstance(value, OUTCOMES) else Completed(value)
        finally:
            scope.over = True
            self.running.clear()
            SCOPE.reset(token)
            self._unwound()
        self._uncancel()
        return self._judged(ended)

    def _measure_wait(self, step: Step) -> None:
        """Measure the wait that this step, or the row before it, has ended with."""
        if step.waits:
            self.resumed(msgspec.structs.replace(step, finished_at=self.claim.run_at))
        elif (
            step.seq
            and (before := next(islice(self.rows.values(), step.seq - 1, None))).kind is not StepKind.TASK
        ):
            self.resumed(before)

    def _judged(self, ended: End) -> End:
        """Return the outcome: the handler's, or the stop. A result is kept while the run is given back."""
        if self._stop is None or (
            self._stop.why is StopReason.RELEASED and isinstance(ended, Completed | Waiting)
        ):
            return ended
        self.tried("cancelled", self.begun_at)
        return self._stop

    async def _answer(self, handler: Handler, task: PlanTask) -> Any:
        function = handler.function
        if self.spans is not None:
            self.spans.waited_in_plan(self.rows.values(), self.step)
            function = self.spans.traced(function, task.name, (Retry, Dead))
        if handler.is_async:
            return await function(task)
        while True:
            with suppress(NotBegun):
                value = await self.world.thread(
                    self._called, function, task, stragglers=self.worker.straggling
                )
                return await value if inspect.isawaitable(value) else value  # a lambda around an async call
            await confirm(self)
            self.check_time()

    def _called(self, function: Callable[[PlanTask], Any], task: PlanTask) -> Any:
        if self.lease_clock.over:
            raise NotBegun  # the call may have waited long for a free thread
        return function(task)

    # -- answers of commits --------------------------------------------------------------------

    def _verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        if self.worker.hooks:
            self.worker.hook_notifier.steps(self, verdict, sent)
        if verdict.answer is not Answer.APPLIED:
            self.stop(StopReason(verdict.answer), verdict.reason)

    @property
    def goes_on(self) -> bool:
        """True when this worker would execute a later row, as far as the rows are known here."""
        later = (one for one in self._rest() if self.step is None or one.seq > self.step.seq)
        return not self.worker.draining and any(one.kind is StepKind.TASK for one in later)

    def _rest(self) -> Iterator[Step]:
        """Yield the rows from the current one on; a row's `seq` is its position. Earlier rows of a long plan
        are skipped.
        """
        return islice(self.rows.values(), 0 if self.step is None else self.step.seq, None)

    async def go_on(self, verdict: Verdict, done: StepWrite | None = None) -> bool:
        """Take over the row that is current now. A row that has succeeded is not read again."""
        here = self.step
        assert here is not None
        self.attempt, self.crashes = 1, 0
        if done is not None:
            self.rows[here.key] = msgspec.structs.replace(
                here, status=StepStatus.SUCCEEDED, output=done.output
            )
            self.record.memory += memory_bytes(done.output)
        step = verdict.settled[-1] if verdict.settled else None
        if step is None or step.seq != here.seq + (done is not None):
            # Rows in between were settled in the same commit; a repeated answer may not contain them.
            await self._read()
            new = tuple(self.rows.values())
        else:
            self.rows[step.key] = step
            new = (step,)
        if why := shut(msgspec.structs.replace(self.claim, steps=new)):
            self.stop(StopReason.SEALED, why)
        return True

    async def _read(self) -> None:
        try:
            run, tenant = self.claim.id, self.claim.tenant
            steps = await patiently(self, lambda: self.worker.store.steps(run, tenant))
        except UnknownRun:  # deleted: it has been taken from this worker
            self.stop(StopReason.LOST)
        else:
            self.rows = {step.key: step for step in steps}
