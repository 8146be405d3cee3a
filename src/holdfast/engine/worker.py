"""A worker: claims runs it has a handler for, executes many at once, gives back what it must."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Self
from uuid import UUID
from weakref import WeakKeyDictionary

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
from holdfast.errors import LeaseLost, StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.records import RUNTIME, SECOND, Claim
from holdfast.sealing.envelope import shut
from holdfast.threads import Stragglers
from holdfast.world import World

from .appetite import Appetite
from .committer import Committer
from .definitions import Defined, matches
from .failures import text
from .held import UNWIND_SECONDS, HeldRun
from .holding import held, why_lacking
from .hooks import Hooks
from .keeper import Bell, Keeper, seconds_until
from .lease import Leases
from .loading import Loads
from .outcome import Why
from .plans.versions import Versions
from .presence import Refresh, show, shows
from .relay import Relay
from .sinks import Sinks
from .slots import Ends
from .teller import Teller
from .turns import TROUBLE_SECONDS, unforeseen

log = safe_logger("holdfast.worker")

_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()  # how many work on each

SLOTS = 100
GATHER_SECONDS = 0.003  # how long a nearly full worker lets slots gather before it claims again
HURRIED_SECONDS = 0.5  # what code may take to clean up after a second signal
PLACE_MAX = 200  # characters of a worker's place in its id
CLAIM_SECONDS = 5.0  # how long a worker that stops waits for the answer to its last claim


class Worker:
    """`async with app.worker(...)`: it works while the block runs, and stops gracefully at its end."""

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
        self.store, self.world = store, world
        # The process's place alone would not do: two workers of one process would take each other's runs
        # for strays, and give them back.
        self.id = (
            f"{check_name('name', name)}:{text(world.place(), PLACE_MAX)}{world.uuid7().int & 0xFFFF:04x}"
        )
        self.patterns = check_patterns(patterns)
        self._workflows = {type_: one for type_, one in workflows.items() if matches(type_, self.patterns)}
        self.versions = Versions(self, workflows, self._workflows)
        self.hooks: Hooks = {} if hooks is None else hooks
        self.teller = Teller(self.hooks, world, self.id)
        self.tenants = None if tenants is None else check_names("tenant", tenants)
        self.runtime = check_name("runtime", runtime)
        self.slots = check_whole("slots", slots, 1)
        self._batch = self.slots if batch is None else check_whole("batch", batch, 1)
        self.lease_seconds, self._grace = check_lease(lease), check_duration("grace", grace)
        self._with_keeper, self._ttl_seconds = keeper, check_kept("ttl", ttl)
        self._wait_timeouts = wait_timeouts
        # Functions are here and nowhere else; an address is any keeper's.
        functions = dict(sinks or {}) if relay else {}
        self.relay = Relay(store, world, self.id, functions, tenants=self.tenants, webhooks=relay and keeper)
        self._bell = Bell(store.traits.poll_seconds if poll is None else check_positive("poll", poll))
        self._draining = self._hurried = self._works = False
        self._refresh = Refresh(self)
        self._executions: dict[asyncio.Task[None], HeldRun] = {}
        self.straggling = Stragglers(self.look_again)
        self._ends = Ends()
        self.loads, self._appetite = Loads(self), Appetite(self)
        self._more = True  # whether the last claim has left some, for want of slots
        self.finished = 0

    def __enter__(self) -> NoReturn:
        """The mistake of a moment, in words."""
        raise UsageError(
            "a worker is async: `async with app.worker()`, or `with app.sync.worker()` in plain code"
        )

    def __exit__(self, *_: object) -> None:
        """Never reached."""

    async def __aenter__(self) -> Self:
        """Begin to work."""
        await self.store.open()
        self.committer = Committer(self.store, self.world, self._sending)
        self.leases = Leases(self.id, self.store, self.world, self.committer, self.lease_seconds)
        self._keeper = Keeper(
            self.store, self._news, self._failed, self._ttl_seconds, wait_timeouts=self._wait_timeouts
        )
        for type_, tasks in self.versions.lacking.items():
            log.warning("plan %s is not claimed here%s", type_, why_lacking(tasks, self._workflows[type_]))
        await self.store.publish([one.definition() for one in self._workflows.values()])
        await self.versions.look()
        await show(self)
        self._unlisten = self.store.listen(self._hint)
        self.leases.begin()
        self._loops = [
            self.world.spawn(self._claims(), "holdfast-claim"),
            self.world.spawn(shows(self), "holdfast-presence"),
        ]
        if self._with_keeper:
            self._loops.append(self.world.spawn(self._keeper.run(self.world.spawn), "holdfast-keeper"))
            purges = self._keeper.purges(self.world.chance())
            self._loops.append(self.world.spawn(purges, "holdfast-purge"))
        self.relay.begin()
        self._works = True
        _loops[asyncio.get_running_loop()] = _loops.get(asyncio.get_running_loop(), 0) + 1
        log.info("worker %s: %d workflows, %d slots", self.id, len(self._workflows), self.slots)
        self.teller.tell("worker.started")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: no new claims, the grace period for what runs, the rest is given back."""
        await self.stop()

    @property
    def types(self) -> tuple[str, ...]:
        """The types of which it can execute every run."""
        return self.versions.types

    @property
    def draining(self) -> bool:
        """It claims nothing more, and stops when what it holds has ended."""
        return self._draining

    def drain(self) -> None:
        """Claim nothing more."""
        self._draining = True

    async def stop(self, grace: Seconds | None = None) -> bool:
        """As at the end of the block; `grace=0` gives everything back at once. Again, and nothing happens.

        Whether the store has answered to all of it: if not, closing it would wait for what does not come.
        """
        if not self._works:
            return True
        self.drain()
        self._unlisten()
        self._bell.ring()
        claims, *others = self._loops
        for loop in others:
            loop.cancel()
        # A claim that is on its way is waited for: cancelled, it might be made and nobody know of it.
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
        answers = await self.leases.end(self.lease_seconds if answers else 0) and answers
        if answers:
            with suppress(StoreError):
                await self.store.absent(self.id)
        if self._works:  # or two have stopped it at the same time
            self._works = False
            _loops[asyncio.get_running_loop()] -= 1
            log.info("worker %s stopped after %d executions", self.id, self.finished)
            self.teller.tell("worker.stopped")
        await self.teller.end()
        return answers

    def hurry(self) -> None:
        """A second signal: do not wait for the grace period."""
        self._hurried = True
        self._bell.ring()
        self._release(HURRIED_SECONDS)
        self.relay.leave()
        self.teller.leave()

    def _release(self, unwind_seconds: float = UNWIND_SECONDS) -> None:
        # Not those held alone: one that was lost may still be at its end, and would never be told.
        for execution in list(self._executions.values()):
            execution.stop(Why.RELEASED, unwind_seconds=unwind_seconds)

    async def _let_go(self) -> bool:
        """Wait until all runs are given back; but not much longer than a lease: then they are gone anyway."""
        left: set[asyncio.Task[None]] = set()
        if self._executions:
            limit = self.lease_seconds + 2 * UNWIND_SECONDS
            _, left = await asyncio.wait(self._executions, timeout=limit)
        if left:
            log.warning(
                "%d runs cannot be given back, the store does not answer: their leases end", len(left)
            )
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=UNWIND_SECONDS)
        await self.committer.drain(0 if left else self.lease_seconds)
        return not left

    async def _let_return(self, grace: float) -> None:
        """Plain functions see that they are cancelled, and may want to clean up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(grace, UNWIND_SECONDS)):
                while self.stragglers and not self._hurried:
                    await self._bell.wait(None)
        if self.stragglers:
            log.warning("%d plain functions have not returned: they are left behind", self.stragglers)

    def look_again(self) -> None:
        """Let the loop that claims look whether it may claim more."""
        self._bell.ring()

    @property
    def busy(self) -> int:
        """How many runs it holds."""
        return len(self.leases.held)

    @property
    def stragglers(self) -> int:
        """Plain functions that were told to stop and have not returned; each keeps a slot until it does."""
        return self.straggling.count

    @property
    def free(self) -> int:
        """How many more it may take: the runs whose code it executes are never more than its slots."""
        if self.world.exhausted():
            return 0  # another worker has threads for them
        return max(0, self.slots - self.busy - self.stragglers + self._ends.sent)

    def ends(self, execution: HeldRun) -> None:
        """The code of this run has come to its end: with the commit that says so its slot is free."""
        self._ends.add(execution)

    def _sending(self) -> None:
        """A commit goes out in the next turn of the loop: a claim that is queued just before it shares it."""
        if self._ends.send() and self._more:
            self._bell.ring()

    # -- claiming ------------------------------------------------------------------------------

    async def _claims(self) -> None:
        while not self._draining:
            due: float | None = None
            types = self.versions.claimed
            try:
                limit = self.committer.room(min(self.free, self._batch))
                if not types:
                    self._more = False
                elif not limit:
                    self._more = True  # or what it was rung for would be forgotten
                else:
                    self._more = await self.versions.claim(self._claim, limit)
                    if not self._more:
                        due = await seconds_until(self.store, types, self.tenants, runtime=self.runtime)
            except Exception as error:
                # Whatever it was: a loop that ends in silence leaves a worker that is there and does nothing.
                log.warning("cannot claim now, will try again: %s", error, exc_info=unforeseen(error))
                due, self._more = TROUBLE_SECONDS, False
                self._appetite.failed()
            await self._rest(due)

    async def _rest(self, due: float | None) -> None:
        """Wait for a slot or for news, whichever is wanting."""
        if self.committer.full and not self.committer.room(self.free):
            await asyncio.sleep(GATHER_SECONDS)
        elif self._more and self.free:
            return
        elif self._more:
            # Full, and there is more: let some slots gather, so that one commit claims for many.
            await self._bell.wait(None)
            if self.free < self.slots // 4:
                await asyncio.sleep(GATHER_SECONDS)
        else:
            await self._bell.wait(due)

    async def _claim(self, types: tuple[str, ...], limit: int) -> bool:
        """Claim and begin; whether there may be more at once."""
        ask = self._appetite.ask(types, limit)
        claimed_at = self.world.monotonic()
        self.leases.claiming = True
        try:
            if claims := await self.store.claim(ask):
                self._bell.found()
            self._appetite.answered()
            for claim in claims:
                self._begin(claim, claimed_at)
        finally:
            self.leases.claiming = False
        return len(claims) == ask.limit

    def _begin(self, claim: Claim, claimed_at: float) -> None:
        known = self._workflows.get(claim.type) or self.versions.taken(claim.type)
        execution = held(claim, known, self, claimed_at)
        if why := shut(claim):
            execution.stop(Why.SEALED, why)
        self.leases.hold(execution)
        if claim.crashes:
            self._appetite.watch(execution, self._bell.ring)
        self.committer.begun(claim.id)
        task = self.world.spawn(self._execute(execution), claim.type)
        self._executions[task] = execution
        task.add_done_callback(self._executions.pop)

    async def _execute(self, execution: HeldRun) -> None:
        claim = execution.claim
        try:
            await execution.run()
        except Exception:
            # A fault of ours must not take the worker with it; the lease ends and the run is taken up again.
            log.exception("run %s: the engine failed", claim.id)
        finally:
            if execution.ended_as in {"", "lost"}:
                log.warning(
                    "%s: what this worker did since counts for nothing", LeaseLost(claim.id, claim.fence)
                )
                self.leases.give_up(claim.id, claim.fence)
                if self.hooks:
                    self.teller.run("run.lost", execution)
            if self.leases.held.get(claim.id) is execution:
                del self.leases.held[claim.id]
            self.finished += 1
            self.committer.ended(claim.id)
            self.loads.freed()
            self._ends.forget(execution)
            if not execution.ending or claim.crashes:
                self._bell.ring()  # the room for runs that have crashed is free only now
            if log.isEnabledFor(logging.INFO):
                took = (execution.now() - claim.lease_until) / SECOND + self.lease_seconds
                log.info(
                    "%s %s %s after %.2f s", claim.type, claim.id, execution.ended_as or "given up", took
                )

    # -- news ----------------------------------------------------------------------------------

    def _failed(self, runs: Sequence[UUID]) -> None:
        if self.hooks:
            self.teller.failed(self.store, runs)

    def _hint(self) -> None:
        self._news()
        self._keeper.bell.ring()
        self.relay.bell.ring()

    def _news(self) -> None:
        """There may be work; and there may be news for runs that are at work."""
        self._bell.ring()
        self._refresh.soon()


def hosts_worker() -> bool:
    """Whether this thread runs an event loop on which a worker is at work."""
    try:
        return _loops.get(asyncio.get_running_loop(), 0) > 0
    except RuntimeError:
        return False
