"""The execution of one run of a code workflow, from claim to commit: replay, live calls, outcome, commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.codec import untyped
from holdfast.engine import outcome as ends
from holdfast.engine.commit.journal import GRANTED, Asked, Journal, Written
from holdfast.engine.outcome import StopReason
from holdfast.engine.worker.held_run import UNWIND_SECONDS, HeldRun
from holdfast.engine.worker.loading import lease_of
from holdfast.errors import BadValue, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Answer, Claim, Held, Step, StepWrite, Verdict

from .context import Context
from .drive import Drive
from .finish import finish
from .record import OUTCOMES, Record, Recorded
from .signals import CONTINUED_ON, SWALLOWED, Parked, continued, only_signals
from .stage import UNUSED, Stage
from .sync_context import bridge

if TYPE_CHECKING:
    from holdfast.engine.definitions import Workflow
    from holdfast.engine.worker.worker import Worker

log = safe_logger("holdfast.run")

GIVE_WAY_SECONDS = 0.005
VALUED = frozenset({StepKind.TASK, StepKind.CHILD})  # kinds of steps whose value user code gets


class Execution(HeldRun):
    """The execution of a code workflow: replay from the record, live calls, parking."""

    __slots__ = (
        "_early",
        "_gave_way_at",
        "_measured",
        "_parking",
        "_reading",
        "_told_at",
        "backoffs",
        "continuing",
        "given_up",
        "stage",
        "unopened",
        "workflow",
    )

    stage: Stage

    def __init__(self, claim: Claim, workflow: Workflow, worker: Worker, claimed_at: float) -> None:
        # In a segment the values of steps are not in the store yet.
        record = Record(claim, workflow.steps_max, workflow.bytes_max, keeps=workflow.segment)
        super().__init__(claim, worker, claimed_at, record)
        self.workflow = workflow
        self.journal = Journal(
            claim,
            record,
            worker.committer,
            self.world,
            self.lease_clock,
            self._told_verdict if worker.hooks else self._verdict,
            # A grant is no commit: no hook is called for it.
            on_grant=self._verdict if workflow.segment else None,
            complete=worker.loads.completed,
        )
        self._told_at = self._gave_way_at = claimed_at
        self._reading: asyncio.Task[None] | None = None
        self._parking: ends.Waits | None = None
        self.unopened: dict[str, StepWrite] = {}
        self.given_up: dict[str, StepWrite] = {}
        self.backoffs: dict[str, ends.StepRetry] = {}
        self._early: list[Step] = []
        self._measured: set[str] = set()  # waits that were measured, if anything is

    # -- called by the worker and the renewal --------------------------------------------------

    async def _execute_once(self) -> bool:
        return await finish(self, await self._perform())

    def _close_stage(self) -> None:
        self.stage.closed = True

    def news(self, held: Held) -> None:
        """Take the answer of a renewal, with waits that were settled meanwhile."""
        self._told_at = self.world.monotonic()
        super().news(held)
        if held.answer is not Answer.APPLIED:
            return
        self.journal.pause_asked = held.pause_asked
        self._learn(held.settled)
        if held.more and self._reading is None:
            self._reading = self.world.spawn(self._read_news(), "holdfast-read")

    def _learn(self, settled: Iterable[Step]) -> None:
        if self.journal.busy:
            # Waits that were settled after the commit on its way are kept until that commit is answered: a
            # later execution reads the two in the store's order.
            self._early.extend(settled)
        else:
            self._settled(settled)

    async def _read_news(self) -> None:
        try:
            news, steps = await self.worker.loads.news(lease_of(self.claim), self.record.known)
        finally:
            self._reading = None
        if news.answer is Answer.APPLIED:
            self._learn(steps)
        else:
            self.stop(StopReason(news.answer), news.reason)

    @property
    def suspect(self) -> int:
        """The number of crashes since progress was last committed; a segment commits none before its end."""
        return self.claim.crashes if self.workflow.segment else self.crashes

    # -- one execution of the function ---------------------------------------------------------

    async def _perform(self) -> ends.Outcome:
        unread: ends.Raised | ends.Stopped | None = None
        if self.claim.unread or self.record.partial:
            unread = await self.worker.loads.read(self, self.workflow.bytes_max)
        self.record.begin()
        self._parking, self.unopened, self.backoffs, self.given_up = None, {}, {}, {}
        self.continuing = False
        self.stage = Stage(self.record.rank, self.record.settled_keys(), self._at_rest, self.world.linger)
        if self._stop is not None:
            self.stage.leave()  # stopped before it began: open calls are still answered
            return self._stop
        if unread is not None:
            self.stage.leave()
            return unread
        context = Context(self)
        try:
            params, function = self._params(), self.workflow.function
            self._drive = Drive(bridge(self, params) if self.workflow.is_sync else function(context, *params))
            value = await self._drive
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
            ended: ends.Outcome = ends.Raised(error)
        else:
            ended = self._completed(value)
        finally:
            self._unwound()
            self.stage.closed = True
        self.stage.going_on = continued(getattr(ended, "error", None)) is not None
        left = await self._left_behind(ended, used=getrefcount(context) > UNUSED)
        await self._end_branches()
        await self.stage.give_way()
        self.stage.leave()
        return self._judged(ends.Raised(UsageError(left)) if left else ended)

    async def _left_behind(self, ended: ends.Outcome, *, used: bool) -> str:
        """Return the complaint when the body returned and left something open; empty when it did not."""
        by_itself = isinstance(ended, ends.Completed) or self.stage.going_on
        if not by_itself or self.workflow.is_sync or self._stop is not None or self._parking is not None:
            return ""
        return await self.stage.left_behind(used=used)

    def _params(self) -> tuple[Any, ...]:
        if not self.workflow.takes_params:
            return ()
        return (self.workflow.params.decode(self.claim.params, f"params of {self.workflow.type}"),)

    def _completed(self, value: Any) -> ends.Outcome:
        try:
            return ends.Completed(self.workflow.result.encode(value, f"the result of {self.workflow.type}"))
        except BadValue as error:
            return ends.Raised(error)

    def _judged(self, ended: ends.Outcome) -> ends.Outcome:
        """Return the outcome: the code's own end, or the stop or park that made it end."""
        error = ended.error if isinstance(ended, ends.Raised) else None
        self._uncancel()
        if self._stop is not None:
            return self._stop
        if self._parking is not None:
            if error is None or self._abandoned or not only_signals(error, Parked, asyncio.CancelledError):
                swallowed = UsageError(SWALLOWED)
                swallowed.__cause__ = error
                return ends.Raised(swallowed)
            return self._parking
        following = continued(error)
        if following is not None:
            return ends.ContinuedAs(following.params)
        if isinstance(error, Parked):
            return ends.Raised(UsageError(SWALLOWED))
        if self.continuing and error is None:
            return ends.Raised(UsageError(CONTINUED_ON))
        return ended

    async def _end_branches(self) -> None:
        left = [task for task in self.stage.tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=UNWIND_SECONDS)

    # -- rest and parking ----------------------------------------------------------------------

    def _at_rest(self) -> None:
        if self.journal.busy or self._parking is not None or self._stop is not None or self._drive is None:
            return
        self.unopened = {key: write for key, write in self.unopened.items() if key in self.stage.waits}
        if self.stage.running:
            self._open_waits()
        else:
            self._park(self._drive)

    def _open_waits(self) -> None:
        """Record open waits now, while other branches still work, so that their time begins to count."""
        opened, self.unopened = self.unopened, {}
        for write in opened.values():
            self.journal.write(write)

    def _park(self, drive: Drive) -> None:
        self._parking = ends.Waits(tuple(self.unopened.values()), tuple(self.backoffs.values()))
        # Otherwise a step in a `finally` around the wait would run now, although the wait has not ended.
        self.stage.closed = True
        drive.interrupt(Parked())
        self._limit_unwinding()

    # -- answers of commits and renewals ------------------------------------------------------

    def _told_verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        self.worker.hook_notifier.steps(self, verdict, sent)
        self._verdict(verdict, sent)

    def _verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        if verdict.answer is not Answer.APPLIED:
            self.stop(StopReason(verdict.answer), verdict.reason)
            return
        # Waits that the commit itself settled come after what it records, as they do in the store: their
        # numbers are its last ones. All others were settled before it.
        news, before = verdict.settled, verdict.seq
        if news:
            numbers = {step.seq for step in news}
            while before in numbers:
                before -= 1
            self._settled(step for step in news if step.seq <= before)
        for one in sent:
            if one[2] is not GRANTED:
                self._committed(verdict, *one)
        if news:
            self._settled(step for step in news if step.seq > before)
        if self._early:
            early, self._early = self._early, []
            self._settled(early)
        self.record.known = max(self.record.known, verdict.seq)
        if self.stage.waits:
            self.stage.arm()

    def _committed(self, verdict: Verdict, write: StepWrite, future: Asked, value: Any) -> None:
        if write.status in OUTCOMES:
            self.attempt, self.crashes = 1, 0
        if verdict.kept:
            write = _as_kept(verdict, write)
        self.record.committed(write)
        if future is not None:
            try:
                standing = _standing(verdict, write, value) if verdict.kept else value
            except BadValue:
                # the next execution reads the same value during replay, and fails there
                self.stop(StopReason.RELEASED)
            else:
                self.stage.publish(future, standing)

    def _settled(self, steps: Iterable[Step]) -> None:
        for step in steps:
            before = self.record.steps.get(step.key)
            if before is None or before.status is StepStatus.WAITING:
                self.record.add(step)
                self.stage.settle(step.key, step)

    def measure_wait(self, step: Recorded) -> None:
        """Measure how soon the code goes on after a wait, once for each wait."""
        if self.measures is not None and isinstance(step, Step) and step.key not in self._measured:
            self._measured.add(step.key)
            self.resumed(step)

    async def boundary(self) -> None:
        """Look for news between two steps of a segment, since no commit brings any."""
        now = self.world.monotonic()
        if now - self._told_at >= self.workflow.refresh_seconds:
            await self.worker.leases.refresh()
        elif now - self._gave_way_at >= GIVE_WAY_SECONDS:
            # A segment may never wait: without this, other runs would not get their turn.
            self._gave_way_at = now
            await asyncio.sleep(0)

    def check_room(self) -> None:
        """Refuse a new step when the run has recorded as many as it may."""
        self.record.check_room(self.stage.running + len(self.unopened))


def _as_kept(verdict: Verdict, write: StepWrite) -> StepWrite:
    """Return the step as it is recorded: with this value, or with the one that was recorded first."""
    kept = dict(verdict.kept)
    if write.key not in kept or write.kind not in VALUED or write.status is not StepStatus.SUCCEEDED:
        return write
    return msgspec.structs.replace(write, output=kept[write.key] or "null")


def _standing(verdict: Verdict, write: StepWrite, value: Any) -> Any:
    """Return the value recorded under the key: this one, or the one that was recorded first."""
    kept = dict(verdict.kept)
    stands = write.key in kept and write.kind in VALUED
    return untyped.decode(kept[write.key] or "null", f"step {write.key!r}") if stands else value
