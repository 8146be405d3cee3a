"""Behind the scenes of a rehearsal: a loop that is turned by hand, a store, and workers that may die.

Between two calls of a test nothing moves. `settle` lets happen what needs no time; `turn` turns the clock to
where something happens next, over all the polls between, and settles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.app import App
from holdfast.engine.worker import Worker
from holdfast.errors import UsageError
from holdfast.records import SECOND, Instant

from .cast import Cast, patient
from .complaints import complaints
from .crashes import Calm, Crash, Recorded
from .understudy import Begun
from .virtual import VirtualLoop, VirtualWorld, sweep

FOR_EVER_SECONDS = 1e9

MakeStore = Callable[[Callable[[], Instant]], Any]
MakeApp = Callable[[VirtualWorld, Any], App]


@dataclass
class Watch:
    """What is to go wrong, and who is told of steps that are begun and recorded."""

    crash: Crash = field(default_factory=Calm)
    begun: Begun | None = None
    recorded: Recorded | None = None


class Clockwork:
    """One loop, one store, and whoever works."""

    def __init__(
        self, make_store: MakeStore, make_app: MakeApp, lease_seconds: float, begins_at: Instant, watch: Watch
    ) -> None:
        self._make_app, self._lease_seconds, self._begins_at = make_app, lease_seconds, begins_at
        # The loop last: it wants to be closed, and making a store may fail.
        self.store = make_store(lambda: begins_at + self._loop.elapsed)
        self._loop = VirtualLoop()
        self.cast = Cast(
            self.store,
            watch.crash,
            lease_seconds,
            begins_at=begins_at,
            recorded=watch.recorded,
            at_once=True,
        )
        self._workers: dict[VirtualWorld, Worker] = {}
        self._wait: float | None = None  # seconds to the next timer of the loop
        # The test's own process: nothing ever happens to it.
        self.app = make_app(VirtualWorld(begins_at=begins_at), self.store)

    @property
    def elapsed(self) -> int:
        """Microseconds since the curtain rose."""
        return self._loop.elapsed

    @property
    def over(self) -> bool:
        """It has been closed."""
        return self._loop.is_closed()

    @property
    def running(self) -> bool:
        """Something plays at this very moment."""
        return self._loop.is_running()

    @property
    def busy(self) -> bool:
        """A worker that lives holds a run."""
        return any(worker.busy for world, worker in self._workers.items() if not world.frozen)

    def begin(self) -> None:
        """Open the store; let a worker stand ready."""
        self.do(self._begin())

    def do(self, call: Awaitable[Any]) -> Any:
        """Await something here; all that it sets off happens at once."""
        try:
            self._refuse_inside()
        except UsageError:
            if asyncio.iscoroutine(call):
                call.close()
            raise
        try:
            return self._loop.run_until_complete(_awaited(call))
        finally:
            self._settle()

    def crash(self) -> None:
        """Every worker dies; others stand ready."""
        for world in self._workers:
            world.freeze()
        if not self._loop.is_running():
            self._settle()

    def turn(self, until: int | None) -> bool:
        """Turn the clock to where something happens, at most to `until`; False when nothing ever will."""
        self._refuse_inside()
        now = self._loop.elapsed
        due = None if self.busy else self._due()
        if self.busy or (due is not None and due <= now):
            # Somebody is at work, or about to be: the loop's own timers lead the way.
            due = None if self._wait is None else now + max(1, round(self._wait * SECOND))
        stops = [one for one in (due, until) if one is not None]
        if not stops:
            return False
        self._loop.leap_to(min(stops))
        self._settle()
        return True

    def close(self) -> None:
        """End everything."""
        with complaints():  # the dead are woken for it, and would say that they have lost their runs
            sweep(self._loop)
        self._loop.run_until_complete(self.store.close())
        self._loop.close()

    def check(self) -> None:
        """Raise what went wrong where nobody looked."""
        self._loop.check()

    def _refuse_inside(self) -> None:
        if self.over:
            raise UsageError("the rehearsal is over: look at its runs inside of its `with` block")
        if self._loop.is_running():
            raise UsageError("a workflow or step cannot move the stage it is on: only stage.crash() can")

    async def _begin(self) -> None:
        await self.store.open()
        self.app.world.monotonic()  # from now on the time is this loop's, whoever asks, also in a thread
        self.cast.enter(self._work)

    async def _work(self, world: VirtualWorld, store: Any) -> None:
        app = self._make_app(world, store)

        async def entered() -> None:
            self._workers[world] = await app.worker(
                lease=self._lease_seconds, ttl=FOR_EVER_SECONDS, relay=False
            ).__aenter__()

        await patient(entered)
        # Entered and never left: the play ends under it, and it must not begin to say goodbye then.
        await asyncio.sleep(FOR_EVER_SECONDS)

    def _settle(self) -> None:
        self._wait = self._loop.settle()
        while self.cast.fallen and self._loop.run_until_complete(self.cast.go_on()):
            self._wait = self._loop.settle()

    def _due(self) -> int | None:
        """When the store will next have something to do, on the loop's own clock."""
        due = self._loop.run_until_complete(self.store.due(tuple(self.app.workflows)))
        instants = [at for at in (due.claim_at, due.chore_at) if at is not None]
        return min(instants) - self._begins_at if instants else None


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call
