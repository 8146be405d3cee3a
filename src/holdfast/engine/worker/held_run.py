"""The base of both kinds of execution: one leased run, from its claim to the commit that lets it go."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from holdfast.engine import outcome as ends
from holdfast.engine.log_context import PLACE, LogPlace
from holdfast.engine.outcome import StopReason
from holdfast.engine.tracing import run_spans
from holdfast.errors import RunOverdue
from holdfast.lifecycle import Status
from holdfast.records import SECOND, Answer, Claim, Held, Instant, Lease, LeaseState, Step
from holdfast.sealing.envelope import shut

from .lease_clock import LeaseClock

if TYPE_CHECKING:
    from holdfast.engine.code.drive import Drive
    from holdfast.engine.code.record import Record
    from holdfast.engine.commit.journal import Journal
    from holdfast.engine.tracing.run_spans import RunSpans

    from .worker import Worker

UNWIND_SECONDS = 5.0  # time for user code to clean up when its run parks or is given back
CLEANUP_SECONDS = 60.0  # the same when the run was cancelled, paused or lost


class HeldRun(ABC):
    """A run while this worker holds its lease. `Execution` (code) and `PlanExecution` (plans) complete it.

    A subclass makes the journal, executes user code in `_execute_once`, and sets `_drive` while it does.
    """

    __slots__ = (
        "_abandoned",
        "_answered_at",
        "_drive",
        "_stop",
        "_unwinding",
        "claim",
        "clock_at_claim",
        "crashes",
        "ended_as",
        "ending",
        "journal",
        "lease_clock",
        "measures",
        "place",
        "record",
        "running",
        "shown",
        "spans",
        "worker",
        "world",
    )

    journal: Journal

    def __init__(self, claim: Claim, worker: Worker, claimed_at: float, record: Record) -> None:
        self.claim, self.worker, self.world, self.record = claim, worker, worker.world, record
        self.measures = worker.measures
        self.lease_clock = LeaseClock(self.world, claimed_at, worker.lease_seconds)
        self.place = LogPlace(claim.id, claim.type, claim.tenant, worker.id, claim.attempt)
        self.crashes = claim.crashes
        self.ended_as = ""  # how the run ended here; empty while it has not
        self.ending = False  # user code has ended, and the commit that says so is on its way
        self.clock_at_claim = claim.lease_until - int(worker.lease_seconds * SECOND)
        # The claim was made before it was answered: counted from here, time is never ahead of the store's.
        self._answered_at = self.world.monotonic() - claim.kept_seconds
        # Steps that are executed now, by key, in the order in which they began: the try, and when it began.
        self.running: dict[str, tuple[int, Instant]] = {}
        # Those that people can see already, with the try.
        self.shown: frozenset[tuple[str, int]] = frozenset()
        self._stop: ends.Stopped | None = None
        self._drive: Drive | None = None
        self._unwinding: asyncio.TimerHandle | None = None
        self._abandoned = False  # user code did not end in time when it was interrupted
        if self.measures is not None:
            self.measures.claimed(claim.type, (self.clock_at_claim - claim.run_at) / SECOND)
        self.spans: RunSpans | None = None  # of this execution, when the program records traces

    # -- called by the worker and the renewal --------------------------------------------------

    async def run(self) -> None:
        """Execute until the run ends, parks, or is no longer leased to this worker."""
        if self.measures is None:
            return await self._run()
        try:
            await self._run()
        except Exception:
            self.measures.engine_failed()
            raise
        finally:
            self.measures.executed(self.claim.type, self.ended_as)

    async def _run(self) -> None:
        if self.lease_clock.over:
            self.ended_as = "not begun: its lease expired first"
            return
        self.journal.started_at = self.now()
        PLACE.set(self.place)  # for this task and for what it starts
        self.spans = run_spans.begin(self)
        if self.spans is not None:
            self.journal.stored_trace = self.spans.stored
        if self.worker.hooks:
            self.worker.hook_notifier.run("run.started", self, status=Status.LEASED)
        try:
            while await self._execute_once():
                pass
        finally:
            # The journal refers to this object: without this only the garbage collector could free a run.
            self.journal.leave()
            if self.spans is not None:
                self.spans.end(self.ended_as)
                self.spans = None  # it refers to this object, too

    @abstractmethod
    async def _execute_once(self) -> bool:
        """Execute user code once and commit the outcome. Return True when it is to be executed again."""

    @property
    def attempt(self) -> int:
        """The number of executions since the run last made progress, with this one."""
        return self.place.attempt

    @attempt.setter
    def attempt(self, attempt: int) -> None:
        self.place.attempt = attempt

    def take(self, claim: Claim) -> None:
        """Continue with the whole record of the run, which its claim did not bring."""
        self.claim = claim
        self.record.refill(claim)
        if why := shut(claim):
            self.stop(StopReason.SEALED, why)

    def stop(
        self,
        why: StopReason,
        reason: str = "",
        *,
        cost_max: int = 0,
        unwind_seconds: float = UNWIND_SECONDS,
    ) -> None:
        """Unwind user code: the run was cancelled, lost or paused, or is to be released."""
        if self._stop is None:
            self._stop = ends.Stopped(why, reason, cost_max)
            if self._drive is not None:
                self._close_stage()
                self._drive.interrupt(None)
                self._limit_unwinding(CLEANUP_SECONDS)
        if why is StopReason.RELEASED and self._drive is not None:
            self._limit_unwinding(unwind_seconds)

    def _close_stage(self) -> None:  # noqa: B027 - plans have no stage to close
        """Begin no further step while user code unwinds. Only code workflows have a stage."""

    def lease(self) -> Lease:
        """Return the lease as renewal sends it. Called from the renewal thread."""
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
        """Take the answer of a renewal: the run goes on, or it was cancelled, paused or lost."""
        if held.answer is not Answer.APPLIED:
            self.stop(StopReason(held.answer), held.reason)

    def told(self, state: LeaseState) -> None:
        """Take the state of the lease, which was read after a move of a leased run."""
        if state.answer is not Answer.APPLIED:
            self.stop(StopReason(state.answer))
        else:
            self.journal.pause_asked = state.pause_asked

    @property
    def suspect(self) -> int:
        """Return the number of crashes since progress was last committed."""
        return self.crashes

    @property
    def stopped(self) -> bool:
        """True when user code should end: the run was cancelled, paused or lost, or is to be released."""
        return self._stop is not None

    def now(self) -> Instant:
        """Return the store's time, as far as it can be known without asking. It is late by the time that the
        answer of the claim took, and never early: what ends by it has ended in the store too.
        """
        return self.clock_at_claim + int((self.world.monotonic() - self._answered_at) * SECOND)

    def check_time(self) -> None:
        """Raise RunOverdue when the run's timeout has passed. Called before each step."""
        timeout_at = self.claim.timeout_at
        if timeout_at is not None and self.now() >= timeout_at:
            raise RunOverdue(f"run {self.claim.id} did not end before its timeout")

    def tried(self, outcome: str, begun_at: Instant) -> None:
        """Measure a try of a step that ends now."""
        if self.measures is not None:  # for every step: `now` is written out, in seconds
            elapsed = self.world.monotonic() - self._answered_at
            seconds = elapsed + (self.clock_at_claim - begun_at) / SECOND
            self.measures.tried(self.claim.type, outcome, seconds)

    def resumed(self, step: Step) -> None:
        """Measure a wait after which the run goes on now: from when it was due, or was settled. The run
        became due with the very commit that settled the wait, or the wait was settled in this execution.
        """
        settled_at = step.finished_at
        if self.measures is None or settled_at is None:
            return
        if settled_at == self.claim.run_at or settled_at > self.clock_at_claim:
            since = settled_at if step.due_at is None else min(settled_at, step.due_at)
            self.measures.resumed(self.claim.type, (self.now() - since) / SECOND)

    # -- for the subclasses --------------------------------------------------------------------

    def _uncancel(self) -> None:
        """Withdraw cancels of this task: they were meant for the execution that is over, not for the next."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

    def _limit_unwinding(self, limit_seconds: float = UNWIND_SECONDS) -> None:
        """Abandon user code that has not ended so long after it was interrupted."""
        drive = self._drive

        def give_up() -> None:
            if drive is not None and drive is self._drive:
                self._abandoned = True
                drive.abandon()

        if self._unwinding is not None:
            self._unwinding.cancel()
        self._unwinding = asyncio.get_running_loop().call_later(limit_seconds, give_up)

    def _unwound(self) -> None:
        """Note that user code has ended."""
        self._drive = None
        if self._unwinding is not None:
            self._unwinding.cancel()  # a pending timer would keep the whole run in memory
