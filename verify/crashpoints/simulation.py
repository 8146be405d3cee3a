"""One play: a scenario on a store that fails once, in virtual time, in one process.

A crashed process is frozen for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.engine.app.app import App
from holdfast.lifecycle import OPEN
from holdfast.records import ANY, Item, MessageStatus, OutboxFilter, RunFilter, StepWrite
from holdfast.testing.crashes import Crash, Mode, StoreCall
from holdfast.testing.simulated_processes import Processes, retry_unavailable
from holdfast.testing.virtual import VirtualWorld, process
from verify.checks.evidence import Evidence, gathered
from verify.environment.ledger import Entry
from verify.sabotage import WRAPPERS

from .outcome import Outcome, outcome
from .scenario import MemoryLedger, Scenario

LEASE_SECONDS = 3.0
LIMIT_SECONDS = 600.0  # of virtual time
BROKEN_SECONDS = 120.0  # the same where a bug is switched in
QUIET_SECONDS = 2 * LEASE_SECONDS
LOOK_SECONDS = 0.1
RELAYS = frozenset({"relay", "relayed"})
UNFINISHED = RunFilter(statuses=tuple(OPEN), tenant=ANY)
UNSENT = OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)

MakeStore = Callable[[Callable[[], int]], Any]


@dataclass(frozen=True, slots=True)
class Played:
    """The end of one play."""

    crash: Crash
    evidence: Evidence
    outcome: Outcome
    arrived: bool  # everything was done in time


class CrashHalfway(Crash):
    """A crash after the n-th answer of the server, in the middle of a verb that makes several queries."""

    def __init__(self, trip: int = 0) -> None:
        super().__init__(mode=Mode.DIE_AFTER)
        self.trips: list[str] = []
        self._trip = trip

    def trip(self, verb: str) -> None:
        """Note a query; those of the simulation itself do not count."""
        caller = process()
        if caller is None:
            return
        self.trips.append(verb)
        if len(self.trips) == self._trip:
            self.fired = StoreCall(self._trip, verb, self.trips.count(verb), "a part of a verb")
            caller.freeze()


class ScenarioProcesses(Processes):
    """Processes in which a frozen relay stays frozen until others have sent its messages: its leases are
    longer.
    """

    async def _overtaken(self, process: Any) -> bool:
        if self._crash.fired is not None and self._crash.fired.verb in RELAYS:
            return not await self._store.outbox(UNSENT, 1)
        return await super()._overtaken(process)


class ScenarioPlay:
    """A store, a client, a worker, and the processes that replace them after a crash."""

    def __init__(
        self,
        scenario: Scenario,
        make_store: MakeStore,
        crash: Crash,
        sabotage: str | None = None,
        seed: int = 0,
    ) -> None:
        self._scenario, self._crash, self._sabotage = scenario, crash, sabotage
        clock = VirtualWorld().now
        self._store, self._ledger = make_store(clock), MemoryLedger(clock)
        if isinstance(crash, CrashHalfway):
            self._store.on_trip = crash.trip
        self._processes = ScenarioProcesses(self._store, crash, LEASE_SECONDS, seed=seed, recorded=self._note)
        self._acked: set[UUID] = set()
        self._client_done = False

    async def play(self) -> Played:
        await self._store.open()
        self._processes.start(self._be_client)
        self._processes.start(self._be_worker)
        arrived = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_SECONDS if self._sabotage is None else BROKEN_SECONDS):
                while not await self._is_over():
                    await self._processes.replace_crashed()
                    await asyncio.sleep(LOOK_SECONDS)
                await asyncio.sleep(QUIET_SECONDS)
                arrived = True
        evidence = await gathered(
            self._store,
            self._ledger.entries,
            sorted(self._acked),
            amounts=self._scenario.amounts,
            logs=self._scenario.logs,
        )
        return Played(self._crash, evidence, outcome(evidence), arrived)

    def _note(self, item: Item, step: StepWrite) -> None:
        self._ledger.note(Entry(kind="recorded", run=str(item.run), step=step.key, fence=item.fence))

    def _app(self, world: VirtualWorld, store: Any) -> App:
        wrap = WRAPPERS.get(self._sabotage or "")
        app = App(store if wrap is None else wrap(store), world=world)
        self._scenario.workflows(app, self._ledger)
        return app

    async def _is_over(self) -> bool:
        if not self._client_done or self._processes.zombie_frozen:
            return False
        return not (await self._store.list(UNFINISHED, 1) or await self._store.outbox(UNSENT, 1))

    async def _be_worker(self, world: VirtualWorld, store: Any) -> None:
        app = self._app(world, store)
        # the client comes first: it starts a plan that is not published
        await asyncio.sleep(LOOK_SECONDS / 10)
        # The worker is entered and never left: the play ends before it could stop in an orderly way.
        await retry_unavailable(lambda: app.worker(lease=LEASE_SECONDS, slots=4).__aenter__())
        await asyncio.sleep(LIMIT_SECONDS * 2)

    async def _be_client(self, world: VirtualWorld, store: Any) -> None:
        await self._scenario.client(self._app(world, store), self._ledger, self._acked)
        self._client_done = True
