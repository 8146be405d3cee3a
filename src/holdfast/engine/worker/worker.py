"""The worker: it claims runs that it has a handler for, executes many at once, and gives runs back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from uuid import UUID

from holdfast.arguments import (
    Seconds,
    check_duration,
    check_kept,
    check_lease,
    check_name,
    check_names,
    check_patterns,
    check_positive,
    check_whole,
)
from holdfast.contract import TTL_SECONDS, Store
from holdfast.engine import run_log
from holdfast.engine.bulk.workflow import BUILT_IN
from holdfast.engine.commit.committer import Committer
from holdfast.engine.definitions import Defined, matches
from holdfast.engine.hooks import Hooks
from holdfast.engine.measured import measures_of
from holdfast.engine.outbox.sinks import Sinks
from holdfast.engine.outcome import StopReason
from holdfast.engine.plans.versions import Versions
from holdfast.errors import LeaseLost, NotAllowed, StoreError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status
from holdfast.records import RUNTIME, Claim
from holdfast.sealing.envelope import shut
from holdfast.threads import Stragglers
from holdfast.world import World

from .chores import TROUBLE_SECONDS, will_retry
from .claim_size import ClaimSize
from .duties import Refusal, duties_of
from .executions import held, why_lacking
from .held_run import UNWIND_SECONDS, HeldRun
from .hook_notifier import HookNotifier
from .hosting import OnlyAsync, count_worker
from .keeper import Keeper
from .lease_check import LeaseCheck
from .leases import Leases, task_name
from .loading import Loads
from .looking import Looking
from .presence import Refresh, how_many, show, shows, worker_id
from .running_steps import RunningSteps
from .slots import Ends

log = safe_logger("holdfast.worker")

SLOTS = 100
GATHER_SECONDS = 0.003  # time in which a nearly full worker collects free slots before it claims again
HURRIED_SECONDS = 0.5  # time for user code to clean up after a second signal
CLAIM_SECONDS = 5.0  # time that a stopping worker waits for the answer to its last claim


class Worker(OnlyAsync):
    """A worker. `async with app.worker(...)`: it works while the block runs, then stops gracefully."""

    def __init__(
        self,
        store: Store,
        world: World,
        workflows: Mapping[str, Defined],
        hooks: Hooks | None = None,
        *,
        name: str = "worker",
        patterns: Sequence[str] = ("%",),
        tenants: Sequence[str] | None = None,
        runtime: str = RUNTIME,
        slots: int = SLOTS,
        batch: int | None = None,
        lease: Seconds = 30.0,
        poll: Seconds | None = None,
        grace: Seconds = 10.0,
        keeper: bool = True,
        ttl: Seconds = TTL_SECONDS,
        wait_timeouts: bool = True,
        sinks: Sinks | None = None,
        relay: bool = True,
    ) -> None:
        self.store, self.world, self.measures = store, world, measures_of(store)
        self.run_store: tuple[object, Store] | None = None  # see RUN_STORE
        self.id = worker_id(name, world)
        self.patterns = check_patterns(patterns)
        self._workflows = {type_: one for type_, one in workflows.items() if matches(type_, self.patterns)}
        self._duties = duties_of(store, runtime, sinks, keeper=keeper, relay=relay)
        self.versions = Versions(self, workflows, self._workflows, self._duties.built_in)
        self.hooks: Hooks = {} if hooks is None else hooks
        self.hook_notifier = HookNotifier(self.hooks, world, self.id)
        self.tenants = None if tenants is None else check_names("tenant", tenants)
        self.runtime = check_name("runtime", runtime)
        self.slots = check_whole("slots", slots, 1)
        self._batch = self.slots if batch is None else check_whole("batch", batch, 1)
        self.lease_seconds, self._grace = check_lease(lease), check_duration("grace", grace)
        self._ttl_seconds, self._wait_timeouts = check_kept("ttl", ttl), wait_timeouts
        self._looking = Looking(
            self,
            None if poll is None else check_positive("poll", poll),
            executes=lambda: bool(self._workflows or self._executions),
            wait_timeouts=wait_timeouts,
        )
        self._wake_up = self._looking.claims
        self.relay = self._duties.relay(self, self._looking.shared)
        self._draining = self._hurried = self._works = False
        self.refresh, self._lease_check = Refresh(self), LeaseCheck(self)
        self._running_steps = RunningSteps(self)
        self._executions: dict[asyncio.Task[None], HeldRun] = {}
        self.straggling = Stragglers(self.look_again)
        self._ends, self.loads, self._claim_size = Ends(), Loads(self), ClaimSize(self)
        self._more = True  # True when the last claim left due runs because slots were missing
        self.finished, self.refusal = 0, Refusal()

    async def __aenter__(self) -> Self:
        """Begin to work."""
        await self.store.open()
        self.committer = Committer(self.store, self.world, self._sending)
        self.leases = Leases(self.id, self.store, self.world, self.committer, self.lease_seconds)
        self.keeper = Keeper(
            self.store,
            self._looking.news,
            self._failed,
            self._ttl_seconds,
            lease_seconds=self.lease_seconds,
            wait_timeouts=self._wait_timeouts,
            **self._looking.shared,
        )
        for type_, tasks in self.versions.lacking.items():
            log.warning(
                "runs of plan %s are not executed here%s", type_, why_lacking(tasks, self._workflows[type_])
            )
        await self.store.publish([one.definition() for one in self._workflows.values()])
        await self.versions.look()
        await show(self)
        hint, changed = self._looking.hint, self._looking.changed
        self._unlisten = self.store.listen(hint, self._lease_check.soon, changed)
        self.leases.begin()
        self._loops = [
            self.world.spawn(self._claims(), "holdfast-claim"),
            self.world.spawn(shows(self), "holdfast-presence"),
        ]
        if self._duties.keeps:
            self._loops.append(self.world.spawn(self.keeper.run(self.world.spawn), "holdfast-keeper"))
            purges = self.keeper.purges(self.world.chance())
            self._loops.append(self.world.spawn(purges, "holdfast-purge"))
        self.relay.begin()
        self._works = True
        count_worker(1, self)
        sizes = how_many(len(self._workflows), "workflow"), how_many(self.slots, "slot")
        log.info("worker %s started: %s, %s", self.id, *sizes)
        self.hook_notifier.tell("worker.started")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: no new claims, the grace period for running steps, then runs are given back."""
        await self.stop()

    @property
    def types(self) -> tuple[str, ...]:
        """The types whose runs it can execute."""
        return self.versions.types

    @property
    def draining(self) -> bool:
        """True when it claims nothing more and stops after its runs have ended."""
        return self._draining

    def drain(self) -> None:
        """Claim nothing more."""
        self._draining = True

    async def stop(self, grace: Seconds | None = None) -> bool:
        """Stop as at the end of the block; `grace=0` gives everything back at once. A second call does
        nothing.

        Return True when the store has answered everything: if not, closing it would wait for ever.
        """
        if not self._works:
            return True
        self.drain()
        self._wake_up.ring()
        claims, *others = self._loops
        for loop in others:
            loop.cancel()
        # Wait for a claim that is on its way: a cancelled one might lease runs that nobody knows of.
        await asyncio.wait([claims], timeout=CLAIM_SECONDS)
        claims.cancel()
        await asyncio.wait(self._loops)
        grace_seconds = self._grace if grace is None else check_duration("grace", grace)
        relaying = self.world.spawn(self.relay.end(grace_seconds), "holdfast-relay-end")
        if self._executions:
            await asyncio.wait(self._executions, timeout=grace_seconds)
        self._release()
        answers = await self._let_go()
        await self._let_return(grace_seconds)
        await relaying
        for end in (self._unlisten, self._lease_check.end, self._running_steps.end):
            end()  # not before: runs are cancelled and shown in the grace period, too
        answers = await self.leases.end(self.lease_seconds if answers else 0) and answers
        if answers:
            with suppress(StoreError):
                await self.store.absent(self.id)
        if self._works:  # two callers may stop it at the same time
            self._works = False
            count_worker(-1, self)
            log.info("worker %s stopped after %s", self.id, how_many(self.finished, "execution"))
            self.hook_notifier.tell("worker.stopped")
        await self.hook_notifier.end()
        return answers

    def hurry(self) -> None:
        """Skip the grace period: a second signal came."""
        self._hurried = True
        self._wake_up.ring()
        self._release(HURRIED_SECONDS)
        self.relay.leave()
        self.hook_notifier.leave()

    def _release(self, unwind_seconds: float = UNWIND_SECONDS) -> None:
        # Not only the held runs: a lost run may still be unwinding, and has to be stopped too.
        for execution in list(self._executions.values()):
            execution.stop(StopReason.RELEASED, unwind_seconds=unwind_seconds)

    async def _let_go(self) -> bool:
        """Wait until all runs are given back, or until their leases have expired."""
        left: set[asyncio.Task[None]] = set()
        if self._executions:
            limit = self.lease_seconds + 2 * UNWIND_SECONDS
            _, left = await asyncio.wait(self._executions, timeout=limit)
        if left:
            log.warning(
                "%d runs cannot be released, because the store does not answer: other workers continue them "
                "when their leases expire",
                len(left),
            )
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=UNWIND_SECONDS)
        await self.committer.drain(0 if left else self.lease_seconds)
        return not left

    async def _let_return(self, grace: float) -> None:
        """Wait a short time for sync functions that were cancelled and clean up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace, UNWIND_SECONDS)):
                while self.stragglers and not self._hurried:
                    await self._wake_up.wait(None)
        if self.stragglers:
            many = how_many(self.stragglers, "sync function")
            log.warning("abandons %s that did not return in time", many)

    def look_again(self) -> None:
        """Wake the claim loop: there may be free slots."""
        self._wake_up.ring()

    @property
    def busy(self) -> int:
        """The number of runs that it holds."""
        return len(self.leases.held)

    @property
    def stragglers(self) -> int:
        """The number of cancelled sync functions that have not returned; each keeps a slot until it does."""
        return self.straggling.count

    @property
    def free(self) -> int:
        """The number of runs that it may take: it never executes more runs than it has slots."""
        if self.world.exhausted():
            return 0  # no thread is free here, but perhaps in another worker
        return max(0, self.slots - self.busy - self.stragglers + self._ends.sent)

    def ends(self, execution: HeldRun) -> None:
        """Note that the code of a run has ended: its slot is free with the commit that says so."""
        self._ends.add(execution)

    def _sending(self) -> None:
        """Note that a commit goes out in the next loop turn: a claim that is queued before it shares the
        commit.
        """
        if self._ends.send() and self._more:
            self._wake_up.ring()

    async def _claims(self) -> None:
        since: float | None = None
        while not self._draining:
            due: float | None = None
            looked_at: float | None = None
            types = self.versions.claimed
            try:
                limit = self.committer.room(min(self.free, self._batch))
                if not types:
                    self._more = False
                elif not limit:
                    self._more = True  # otherwise a wake-up would be forgotten
                else:
                    if since is not None:
                        due, looked_at = await self._looking.at_claims(since)
                        limit = min(limit, self.committer.room(self.free))
                    if since is None or due == 0:
                        self._more = await self.versions.claim(self._claim, limit)
                        if not self._more:
                            types = self.versions.claimed  # as they are after the claim
                            due, looked_at = await self._looking.after_claim(types), None
            except NotAllowed as error:
                self.refusal.note(self, error)
                return
            except Exception as error:  # noqa: BLE001 - it is logged
                # Any error: a claim loop that ends silently would leave a worker that lives and does nothing.
                will_retry(log, "claim runs", error, self.measures)
                due, self._more = TROUBLE_SECONDS, False
                self._claim_size.failed()
            since = await self._rest(due, looked_at)

    async def _rest(self, due: float | None, looked_at: float | None) -> float | None:
        """Wait for a free slot, or for news. Return what `WakeUp.wait` does."""
        if self.committer.full and not self.committer.room(self.free):
            await asyncio.sleep(GATHER_SECONDS)
        elif self._more and self.free:
            return None
        elif self._more:
            # The worker is full, and more is due: collect some free slots, so that one commit claims for
            # many.
            await self._wake_up.wait(None)
            if self.free < self.slots // 4:
                await asyncio.sleep(GATHER_SECONDS)
        else:
            return await self._wake_up.wait(due, looked_at)
        return None

    async def _claim(self, types: tuple[str, ...], limit: int) -> bool:
        """Claim runs and begin them. Return True when there may be more at once."""
        ask = self._claim_size.ask(types, limit)
        claimed_at = self.world.monotonic()
        self.leases.claiming = True
        try:
            if claims := await self.store.claim(ask):
                self._wake_up.found()
            self._claim_size.answered()
            for claim in claims:
                self._begin(claim, claimed_at - claim.ahead_seconds)
        finally:
            self.leases.claiming = False
            self._lease_check.claim_answered()
            self.refresh.claim_answered()
        return len(claims) == ask.limit

    def _begin(self, claim: Claim, claimed_at: float) -> None:
        known = self._workflows.get(claim.type) or BUILT_IN.get(claim.type) or self.versions.taken(claim.type)
        execution = held(claim, known, self, claimed_at)
        if why := shut(claim):
            execution.stop(StopReason.SEALED, why)
        self.leases.hold(execution)
        self._running_steps.begin()
        if claim.crashes:
            self._claim_size.watch(execution, self._wake_up.ring)
        self.committer.begun(claim.id)
        task = self.world.spawn(self._execute(execution), task_name(claim.id, claim.type))
        self._executions[task] = execution
        task.add_done_callback(self._executions.pop)

    async def _execute(self, execution: HeldRun) -> None:
        claim = execution.claim
        try:
            await execution.run()
        except Exception:
            # A bug of ours must not end the worker; the lease expires and the run is claimed again.
            log.exception("run %s: the engine failed", claim.id)
        finally:
            if execution.ended_as in {"", "lost"}:
                said = LeaseLost(claim.id, claim.fence), "the work of this worker since then is not recorded"
                log.warning("%s: %s", *said, extra={"run": str(claim.id)})
                self.leases.give_up(claim.id, claim.fence)
                if self.hooks:
                    self.hook_notifier.run("run.lost", execution)
            if self.leases.held.get(claim.id) is execution:
                del self.leases.held[claim.id]
            self.finished += 1
            self.committer.ended(claim.id)
            self.loads.freed()
            self._ends.forget(execution)
            if not execution.ending or claim.crashes or claim.type in self.versions.built_in:
                self._wake_up.ring()  # quotas for crashed runs and for runs of the engine are free only now
            if execution.ended_as != Status.FAILED:  # a failed run has its error line already
                run_log.left(execution, log, self.lease_seconds)

    def _failed(self, runs: Sequence[UUID]) -> None:
        self.hook_notifier.failed(self.store, runs)
