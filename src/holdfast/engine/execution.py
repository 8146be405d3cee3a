"""One held run, from claim to commit: replay and run, outcome as data, commit, report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import BadValue, RunOverdue, UsageError
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import SECOND, Claim, Held, Instant, Lease, Step, StepWrite, Verdict

from . import outcome as ends
from .context import Context
from .drive import Drive
from .finish import finish
from .journal import Journal, Written
from .record import OUTCOMES, Record, Recorded
from .signals import Parked, continued, only_signals
from .stage import Stage

if TYPE_CHECKING:
    from .definitions import Workflow
    from .worker import Worker

log = logging.getLogger("holdfast.run")

UNWIND_SECONDS = 5.0  # what user code may take to clean up when its run parks or is given back
HEARTBEAT_SECONDS = 60.0

SWALLOWED = (
    "the workflow caught the signal that parks it (a bare `except:`, `except BaseException`, or a `finally` "
    "that does not end, around a sleep or an awaited event): catch Exception instead"
)


class Execution:
    """A run while this worker holds it."""

    __slots__ = (
        "_backoffs",
        "_claimed_at",
        "_clock_at_claim",
        "_drive",
        "_early",
        "_given_up",
        "_heartbeat_at",
        "_parking",
        "_stop",
        "_swallowed",
        "_unopened",
        "_unwinding",
        "attempt",
        "claim",
        "crashes",
        "ended_as",
        "journal",
        "record",
        "stage",
        "worker",
        "workflow",
        "world",
    )

    def __init__(self, claim: Claim, workflow: Workflow, worker: Worker, claimed_at: float) -> None:
        self.claim, self.workflow, self.worker = claim, workflow, worker
        self.world = worker.world
        self.record = Record(claim, workflow.steps_max)
        self.journal = Journal(
            claim, self.record, worker.committer, self.world, worker.lease_seconds, self._verdict
        )
        self.attempt, self.crashes = claim.attempt, claim.crashes
        self.ended_as = ""
        self._claimed_at = claimed_at
        self._clock_at_claim = claim.lease_until - int(worker.lease_seconds * SECOND)
        self._heartbeat_at = claimed_at
        self._stop: str | None = None
        self._parking: ends.Waits | None = None
        self._swallowed = False
        self._unopened: dict[str, StepWrite] = {}
        self._given_up: dict[str, StepWrite] = {}
        self._backoffs: dict[str, ends.Backoff] = {}
        self._early: list[Step] = []
        self._drive: Drive | None = None
        self._unwinding: asyncio.TimerHandle | None = None
        self.stage: Stage

    # -- what the worker calls -----------------------------------------------------------------

    async def run(self) -> None:
        """Execute until the run ends, parks, or is no longer ours."""
        if self.world.monotonic() - self._claimed_at >= self.worker.lease_seconds:
            self.ended_as = "not begun: its lease ran out first"
            return
        self.journal.started_at = self.now()
        try:
            while await finish(self, await self._perform()):
                pass
        finally:
            # Or every run is a knot that only the garbage collector can untie.
            self.journal.leave()

    def stop(self, reason: str) -> None:
        """Unwind user code: the run was cancelled, lost or paused, or is to be released."""
        if self._stop is None:
            self._stop = reason
            if self._drive is not None:
                self.stage.closed = True
                self._drive.interrupt(None)
        if reason == "released" and self._drive is not None:
            self._limit_unwinding()

    def lease(self) -> Lease:
        """What renewal says of this run. Called from the renewal thread."""
        now = self.world.monotonic()
        heartbeat = now - self._heartbeat_at >= HEARTBEAT_SECONDS
        if heartbeat:
            self._heartbeat_at = now
        return Lease(
            run=self.claim.id,
            fence=self.claim.fence,
            known=self.record.known if self.record.open_waits else None,
            started_at=self.journal.started_at,
            heartbeat=heartbeat,
            progress=self.journal.take_progress(),
        )

    def news(self, held: Held) -> None:
        """What renewal learnt."""
        if held.answer != "applied":
            self.stop(held.answer)
            return
        if self.journal.busy:
            # What was settled after the commit on its way is not learnt before that commit's answer: a later
            # execution finds the two in the store's order.
            self._early.extend(held.settled)
        else:
            self._settled(held.settled)

    @property
    def cancelled(self) -> bool:
        """User code should come to its end."""
        return self._stop is not None

    def now(self) -> Instant:
        """The store's clock, as far as it can be known without asking."""
        return self._clock_at_claim + int((self.world.monotonic() - self._claimed_at) * SECOND)

    # -- one execution of the function ---------------------------------------------------------

    async def _perform(self) -> ends.Outcome:
        if self._stop is not None:
            return ends.Stopped(self._stop)
        self.record.begin()
        self._parking, self._unopened, self._backoffs, self._given_up = None, {}, {}, {}
        self.stage = Stage(self.record.rank, self.record.settled_keys(), self._at_rest)
        try:
            params = self._params()
            self._drive = Drive(self.workflow.function(Context(self), *params))
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
        await self._end_branches()
        left = await self.stage.forgotten() if self.stage.promised else ""
        if left and isinstance(ended, ends.Completed):
            ended = ends.Raised(UsageError(f"{left} was asked for and never awaited: write `await ctx.…`"))
        self.stage.leave()
        return self._judged(ended)

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
            return ends.Stopped(self._stop)
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

    # -- waits ---------------------------------------------------------------------------------

    async def wait(self, stage: Stage, write: StepWrite) -> Recorded:
        """The settled step of a wait: from the record, or by parking until it is."""
        stage.promised.pop(write.key, None)
        if stage.closed:
            await stage.refuse()
        stage.enter()
        found = self.record.find(write.key, write.kind)
        try:
            if found is not None and found.status in OUTCOMES:
                await stage.replayed(write.key, None)
                return found
            return await self._settled_wait(stage, write, found)
        except asyncio.CancelledError:
            if not stage.closed:
                self._give_up(write)
            raise

    async def _settled_wait(self, stage: Stage, write: StepWrite, found: Recorded | None) -> Step:
        if not stage.alone:
            await stage.live()
        self.check_time()
        if found is None:
            self.check_room()
            self._unopened[write.key] = write
        elif found.status is StepStatus.CANCELLED:
            await self._given_up_again(stage, found)
            self._unopened[write.key] = write  # the code waits for it after all
        return await stage.wait(write.key)  # type: ignore[no-any-return]  # settle() gives a Step

    def _give_up(self, write: StepWrite) -> None:
        """The code cancelled the branch that waited: left open, the wait would eat a later wait's event."""
        key = write.key
        if self._unopened.pop(key, None) is not None:
            return
        found = self.record.steps.get(key)
        if self.journal.carries(key) or (found is not None and found.status is not StepStatus.CANCELLED):
            given_up = msgspec.structs.replace(
                write,
                status=StepStatus.CANCELLED,
                delay_seconds=None,
                due_at=None,
                started_at=self._clock_at_claim,  # no timer of the code's own is older: see below
            )
            self._given_up[key] = _as_opened(write, found)
            self.journal.keep(given_up)
            self.record.committed(given_up)

    async def _given_up_again(self, stage: Stage, found: Recorded) -> None:
        """Let the code give it up as it did, for as long as that took: its own timers begin anew."""
        until = (found.finished_at if isinstance(found, Step) else None) or self.now()
        took = max(0, until - (found.started_at or until))
        stage.running += 1  # or the run would park, and no timer with it
        try:
            await asyncio.sleep(took / SECOND + 1)
        finally:
            stage.running -= 1
            stage.arm()

    def reopen(self) -> None:
        """This attempt has failed: what it gave up, the next one may wait for."""
        for write in self._given_up.values():
            self.journal.keep(write)
        self._given_up = {}

    async def back_off(
        self, key: str, due_at: Instant, write: StepWrite | None = None, said: str = ""
    ) -> None:
        """Hold a step until its next try. With nothing else to do, the run goes back to the queue."""
        self._backoffs[key] = ends.Backoff(due_at, write, said)
        future = self.stage.wait(key)
        delay = max(0.0, (due_at - self.now()) / SECOND)
        timer = asyncio.get_running_loop().call_later(delay, self.stage.settle, key, None)
        try:
            await future
        finally:
            timer.cancel()
            self._backoffs.pop(key, None)
        if write is not None:
            committed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.journal.write(write, committed, (0.0, said))
            await committed

    def _at_rest(self) -> None:
        if self.journal.busy or self._parking is not None or self._stop is not None or self._drive is None:
            return
        self._unopened = {key: write for key, write in self._unopened.items() if key in self.stage.waits}
        if self.stage.running:
            self._open_waits()
        else:
            self._park(self._drive)

    def _open_waits(self) -> None:
        """Other branches still work: record the waits now, so that their time begins to count."""
        opened, self._unopened = self._unopened, {}
        for write in opened.values():
            self.journal.write(write)

    def _park(self, drive: Drive) -> None:
        self._parking = ends.Waits(tuple(self._unopened.values()), tuple(self._backoffs.values()))
        # Or a step in a `finally` around the wait would run now, although the wait has not ended.
        self.stage.closed = True
        drive.interrupt(Parked())
        self._limit_unwinding()

    def _limit_unwinding(self) -> None:
        drive = self._drive

        def give_up() -> None:
            if drive is not None and drive is self._drive:
                self._swallowed = True
                drive.abandon()

        self._unwinding = asyncio.get_running_loop().call_later(UNWIND_SECONDS, give_up)

    # -- what commits and renewals answer ------------------------------------------------------

    def _verdict(self, verdict: Verdict, sent: list[Written]) -> None:
        if verdict.answer != "applied":
            self.stop(verdict.answer)
            return
        # Waits that the commit itself settled come after what it records, as they do in the store: their
        # numbers are its last ones. All others were settled before it.
        news, before = verdict.settled, verdict.seq
        if news:
            while any(step.seq == before for step in news):
                before -= 1
            self._settled(step for step in news if step.seq <= before)
        for write, future, value in sent:
            if write.status in OUTCOMES:
                self.attempt, self.crashes = 1, 0
            self.record.committed(write)
            if future is not None:
                self.stage.publish(future, _standing(verdict, write, value) if verdict.kept else value)
        if news:
            self._settled(step for step in news if step.seq > before)
        if self._early:
            early, self._early = self._early, []
            self._settled(early)
        self.record.known = max(self.record.known, verdict.seq)
        if self.stage.waits:
            self.stage.arm()

    def _settled(self, steps: Iterable[Step]) -> None:
        for step in steps:
            before = self.record.steps.get(step.key)
            if before is None or before.status is StepStatus.WAITING:
                self.record.add(step)
                self.stage.settle(step.key, step)

    def check_time(self) -> None:
        """At every boundary: refuse what comes too late."""
        timeout_at = self.claim.timeout_at
        if timeout_at is not None and self.now() >= timeout_at:
            raise RunOverdue(f"run {self.claim.id} has not ended before its timeout")

    def check_room(self) -> None:
        """Before a new step: refuse one too many; warn once at half."""
        if self.record.check_room(self.stage.running + len(self._unopened)):
            log.warning("run %s has used half of its %d steps", self.claim.id, self.workflow.steps_max)


def _as_opened(write: StepWrite, found: Recorded | None) -> StepWrite:
    """The wait with the time that it had: opened anew, it must not begin to count again."""
    due_at = found.due_at if found is not None else None
    if due_at is None and write.delay_seconds is not None and write.started_at is not None:
        due_at = write.started_at + int(write.delay_seconds * SECOND)
    return write if due_at is None else msgspec.structs.replace(write, due_at=due_at)


def _standing(verdict: Verdict, write: StepWrite, value: Any) -> Any:
    """What stands under the key: what was recorded first, if it was not this."""
    kept = dict(verdict.kept)
    stands = write.key in kept and write.kind is StepKind.TASK
    return msgspec.json.decode(kept[write.key] or "null") if stands else value
