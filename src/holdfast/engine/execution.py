"""One held run, from claim to commit: replay and run, outcome as data, commit, report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from holdfast.codec import plain as plain_codec
from holdfast.errors import BadValue, RunOverdue, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import SECOND, Answer, Claim, Held, Instant, Lease, Step, StepWrite, Verdict
from holdfast.sealing.envelope import shut

from . import outcome as ends
from .context import Context
from .drive import Drive
from .finish import finish
from .held import CLEANUP_SECONDS, UNWIND_SECONDS
from .journal import GRANTED, Asked, Journal, Written
from .lease_clock import LeaseClock
from .loading import lease_of
from .outcome import Why
from .plain import bridge
from .record import OUTCOMES, Record
from .signals import CONTINUED_ON, SWALLOWED, Parked, continued, only_signals
from .stage import UNUSED, Stage

if TYPE_CHECKING:
    from .definitions import Workflow
    from .worker import Worker

log = safe_logger("holdfast.run")

GIVE_WAY_SECONDS = 0.005


class Execution:
    """A run while this worker holds it."""

    __slots__ = (
        "_drive",
        "_early",
        "_gave_way_at",
        "_parking",
        "_reading",
        "_stop",
        "_swallowed",
        "_told_at",
        "_unwinding",
        "attempt",
        "backoffs",
        "claim",
        "clock_at_claim",
        "continuing",
        "crashes",
        "ended_as",
        "ending",
        "given_up",
        "journal",
        "lease_clock",
        "record",
        "stage",
        "unopened",
        "worker",
        "workflow",
        "world",
    )

    def __init__(self, claim: Claim, workflow: Workflow, worker: Worker, claimed_at: float) -> None:
        self.claim, self.workflow, self.worker = claim, workflow, worker
        self.world = worker.world
        self.lease_clock = LeaseClock(self.world, claimed_at, worker.lease_seconds)
        # In a segment the values of steps are not in the store yet.
        self.record = Record(claim, workflow.steps_max, workflow.bytes_max, keeps=workflow.segment)
        self.journal = Journal(
            claim,
            self.record,
            worker.committer,
            self.world,
            self.lease_clock,
            self._told_verdict if worker.hooks else self._verdict,
            # A grant is no commit: no hook is told of it.
            on_grant=self._verdict if workflow.segment else None,
            complete=worker.loads.completed,
        )
        self.attempt, self.crashes = claim.attempt, claim.crashes
        self.ended_as, self.ending = "", False
        self.clock_at_claim = claim.lease_until - int(worker.lease_seconds * SECOND)
        self._told_at = self._gave_way_at = claimed_at
        self._stop: ends.Stopped | None = None
        self._reading: asyncio.Task[None] | None = None
        self._parking: ends.Waits | None = None
        self._swallowed = False
        self.unopened: dict[str, StepWrite] = {}
        self.given_up: dict[str, StepWrite] = {}
        self.backoffs: dict[str, ends.Backoff] = {}
        self._early: list[Step] = []
        self._drive: Drive | None = None
        self._unwinding: asyncio.TimerHandle | None = None
        self.stage: Stage

    # -- what the worker calls -----------------------------------------------------------------

    async def run(self) -> None:
        """Execute until the run ends, parks, or is no longer ours."""
        if self.lease_clock.over:
            self.ended_as = "not begun: its lease ran out first"
            return
        self.journal.started_at = self.now()
        if self.worker.hooks:
            self.worker.teller.run("run.started", self, status=Status.LEASED)
        try:
            while await finish(self, await self._perform()):
                pass
        finally:
            # Or every run is a knot that only the garbage collector can untie.
            self.journal.leave()

    def take(self, claim: Claim) -> None:
        """Go on with all that the run has recorded, which its claim did not bring."""
        self.claim = claim
        self.record.refill(claim)
        if why := shut(claim):
            self.stop(Why.SEALED, why)

    def stop(self, why: Why, reason: str = "", *, unwind_seconds: float = UNWIND_SECONDS) -> None:
        """Unwind user code: the run was cancelled, lost or paused, or is to be released."""
        if self._stop is None:
            self._stop = ends.Stopped(why, reason)
            if self._drive is not None:
                self.stage.closed = True
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
            known=self.record.known if self.record.open_waits else None,
            started_at=self.journal.started_at,
            heartbeat=self.lease_clock.beats(),
            survived=self.lease_clock.survived(self.suspect),
            progress=self.journal.take_progress(),
        )

    def news(self, held: Held) -> None:
        """What renewal learnt."""
        self._told_at = self.world.monotonic()
        if held.answer is not Answer.APPLIED:
            self.stop(Why(held.answer), held.reason)
            return
        self.journal.pause_asked = held.pause_asked
        self._learn(held.settled)
        if held.more and self._reading is None:
            self._reading = self.world.spawn(self._read_news(), "holdfast-read")

    def _learn(self, settled: Iterable[Step]) -> None:
        if self.journal.busy:
            # What was settled after the commit on its way is not learnt before that commit's answer: a later
            # execution finds the two in the store's order.
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
            self.stop(Why(news.answer), news.reason)

    @property
    def suspect(self) -> int:
        """How often it has crashed since progress was last committed; in a segment none of it is yet."""
        return self.claim.crashes if self.workflow.segment else self.crashes

    @property
    def cancelled(self) -> bool:
        """User code should come to its end."""
        return self._stop is not None

    def now(self) -> Instant:
        """The store's clock, as far as it can be known without asking."""
        return self.clock_at_claim + int((self.world.monotonic() - self.lease_clock.claimed_at) * SECOND)

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
            self.stage.leave()  # it was told to stop before it began: what it still sends is answered
            return self._stop
        if unread is not None:
            self.stage.leave()
            return unread
        context = Context(self)
        try:
            params, function = self._params(), self.workflow.function
            self._drive = Drive(bridge(self, params) if self.workflow.plain else function(context, *params))
            value = await self._drive
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is its outcome
            ended: ends.Outcome = ends.Raised(error)
        else:
            ended = self._completed(value)
        finally:
            self._drive = None
            self.stage.closed = True
            if self._unwinding is not None:
                self._unwinding.cancel()  # it would keep the whole run in memory until it rings
        self.stage.going_on = continued(getattr(ended, "error", None)) is not None
        left = await self._left_behind(ended, used=getrefcount(context) > UNUSED)
        await self._end_branches()
        await self.stage.give_way()
        self.stage.leave()
        return self._judged(ends.Raised(UsageError(left)) if left else ended)

    async def _left_behind(self, ended: ends.Outcome, *, used: bool) -> str:
        """What is wrong with how the body ended by itself: something it began is still open."""
        by_itself = isinstance(ended, ends.Completed) or self.stage.going_on
        if not by_itself or self.workflow.plain or self._stop is not None or self._parking is not None:
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
        """Tell an end of the code's own from one that it was made to come to."""
        error = ended.error if isinstance(ended, ends.Raised) else None
        self._uncancel()
        if self._stop is not None:
            return self._stop
        if self._parking is not None:
            if error is None or self._swallowed or not only_signals(error, Parked, asyncio.CancelledError):
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

    def _uncancel(self) -> None:
        """Whoever cancelled this task meant the execution that is over, not the next."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

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
        """Other branches still work: record the waits now, so that their time begins to count."""
        opened, self.unopened = self.unopened, {}
        for write in opened.values():
            self.journal.write(write)

    def _park(self, drive: Drive) -> None:
        self._parking = ends.Waits(tuple(self.unopened.values()), tuple(self.backoffs.values()))
        # Or a step in a `finally` around the wait would run now, although the wait has not ended.
        self.stage.closed = True
        drive.interrupt(Parked())
        self._limit_unwinding()

    def _limit_unwinding(self, limit_seconds: float = UNWIND_SECONDS) -> None:
        drive = self._drive

        def give_up() -> None:
            if drive is not None and drive is self._drive:
                self._swallowed = True
                drive.abandon()

        if self._unwinding is not None:
            self._unwinding.cancel()
        self._unwinding = asyncio.get_running_loop().call_later(limit_seconds, give_up)

    # -- what commits and renewals answer ------------------------------------------------------

    def _told_verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        self.worker.teller.steps(self, verdict, sent)
        self._verdict(verdict, sent)

    def _verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        if verdict.answer is not Answer.APPLIED:
            self.stop(Why(verdict.answer), verdict.reason)
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
        self.record.committed(write)
        if future is not None:
            try:
                standing = _standing(verdict, write, value) if verdict.kept else value
            except BadValue:
                self.stop(Why.RELEASED)  # the next execution finds it where it replays, and fails there
            else:
                self.stage.publish(future, standing)

    def _settled(self, steps: Iterable[Step]) -> None:
        for step in steps:
            before = self.record.steps.get(step.key)
            if before is None or before.status is StepStatus.WAITING:
                self.record.add(step)
                self.stage.settle(step.key, step)

    async def boundary(self) -> None:
        """Between two steps of a segment, where no commit tells what became of the run meanwhile."""
        now = self.world.monotonic()
        if now - self._told_at >= self.workflow.refresh_seconds:
            await self.worker.leases.refresh()
        elif now - self._gave_way_at >= GIVE_WAY_SECONDS:
            # Nothing in a segment need ever wait: other runs would not get their turn.
            self._gave_way_at = now
            await asyncio.sleep(0)

    def check_time(self) -> None:
        """At every boundary: refuse what comes too late."""
        timeout_at = self.claim.timeout_at
        if timeout_at is not None and self.now() >= timeout_at:
            raise RunOverdue(f"run {self.claim.id} has not ended before its timeout")

    def check_room(self) -> None:
        """Before a new step: refuse one too many."""
        self.record.check_room(self.stage.running + len(self.unopened))


def _standing(verdict: Verdict, write: StepWrite, value: Any) -> Any:
    """What stands under the key: what was recorded first, if it was not this."""
    kept = dict(verdict.kept)
    stands = write.key in kept and write.kind is StepKind.TASK
    return plain_codec.decode(kept[write.key] or "null", f"step {write.key!r}") if stands else value
