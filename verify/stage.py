"""One play: an act before a store that fails once. All in virtual time, in one process.

Dying is standing still for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.engine.app import App
from holdfast.lifecycle import OPEN
from holdfast.records import ANY, Item, MessageStatus, OutboxFilter, RunFilter, StepWrite
from holdfast.testing.cast import Cast, patient
from holdfast.testing.crashes import Crash, Made, Mode
from holdfast.testing.virtual import VirtualWorld, process

from .acts import Act, Pages
from .evidence import Evidence, gathered
from .ledger import Entry
from .outcome import Outcome, outcome
from .sabotage import WRAPPERS

LEASE_SECONDS = 3.0
LIMIT_SECONDS = 600.0  # virtual ones
BROKEN_SECONDS = 120.0  # the same where a bug is switched in
QUIET_SECONDS = 2 * LEASE_SECONDS
LOOK_SECONDS = 0.1
RELAYS = frozenset({"relay", "relayed"})
UNFINISHED = RunFilter(statuses=tuple(OPEN), tenant=ANY)
UNSENT = OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)

MakeStore = Callable[[Callable[[], int]], Any]


@dataclass(frozen=True, slots=True)
class Played:
    """How one play ended."""

    crash: Crash
    evidence: Evidence
    outcome: Outcome
    arrived: bool  # all that there was to do was done in time


class Halfway(Crash):
    """Whoever makes the n-th trip to the server dies when it is answered, though his verb may need more."""

    def __init__(self, trip: int = 0) -> None:
        super().__init__(mode=Mode.DIE_AFTER)
        self.trips: list[str] = []
        self._trip = trip

    def trip(self, verb: str) -> None:
        """One was made; those of the stage itself do not count."""
        caller = process()
        if caller is None:
            return
        self.trips.append(verb)
        if len(self.trips) == self._trip:
            self.fired = Made(self._trip, verb, self.trips.count(verb), "a part of a verb")
            caller.freeze()


class Troupe(Cast):
    """A relay that stands still does so until others have sent what it held: its leases are longer."""

    async def _overtaken(self, actor: Any) -> bool:
        if self._crash.fired is not None and self._crash.fired.verb in RELAYS:
            return not await self._store.outbox(UNSENT, 1)
        return await super()._overtaken(actor)


class Stage:
    """A store, a client, a worker, and whoever takes their place."""

    def __init__(
        self, act: Act, make_store: MakeStore, crash: Crash, sabotage: str | None = None, seed: int = 0
    ) -> None:
        self._act, self._crash, self._sabotage = act, crash, sabotage
        clock = VirtualWorld().now
        self._store, self._pages = make_store(clock), Pages(clock)
        if isinstance(crash, Halfway):
            self._store.on_trip = crash.trip
        self._cast = Troupe(self._store, crash, LEASE_SECONDS, seed=seed, recorded=self._note)
        self._acked: set[UUID] = set()
        self._content = False  # the client has all that it wanted

    async def play(self) -> Played:
        await self._store.open()
        self._cast.enter(self._be_client)
        self._cast.enter(self._be_worker)
        arrived = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_SECONDS if self._sabotage is None else BROKEN_SECONDS):
                while not await self._is_over():
                    await self._cast.go_on()
                    await asyncio.sleep(LOOK_SECONDS)
                await asyncio.sleep(QUIET_SECONDS)
                arrived = True
        evidence = await gathered(
            self._store,
            self._pages.entries,
            sorted(self._acked),
            amounts=self._act.amounts,
            logs=self._act.logs,
        )
        return Played(self._crash, evidence, outcome(evidence), arrived)

    def _note(self, item: Item, step: StepWrite) -> None:
        self._pages.note(Entry(kind="recorded", run=str(item.run), step=step.key, fence=item.fence))

    def _app(self, world: VirtualWorld, store: Any) -> App:
        wrap = WRAPPERS.get(self._sabotage or "")
        app = App(store if wrap is None else wrap(store), world=world)
        self._act.workflows(app, self._pages)
        return app

    async def _is_over(self) -> bool:
        if not self._content or self._cast.standing_still:
            return False
        return not (await self._store.list(UNFINISHED, 1) or await self._store.outbox(UNSENT, 1))

    async def _be_worker(self, world: VirtualWorld, store: Any) -> None:
        app = self._app(world, store)
        await asyncio.sleep(LOOK_SECONDS / 10)  # the client is first: nobody has published its plan by then
        # Entered and never left: the play ends under it, and it must not begin to say goodbye then.
        await patient(lambda: app.worker(lease=LEASE_SECONDS, slots=4).__aenter__())
        await asyncio.sleep(LIMIT_SECONDS * 2)

    async def _be_client(self, world: VirtualWorld, store: Any) -> None:
        await self._act.client(self._app(world, store), self._pages, self._acked)
        self._content = True
