"""The simulation behind a rehearsal: one event loop in virtual time, a store, and workers that may crash.

Between two calls of a test nothing runs. `do` runs everything that needs no time. `turn` sets the clock to
the next instant at which something happens, past all polls between, and then runs everything that needs no
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.app.app import App
from holdfast.engine.worker.worker import Worker
from holdfast.errors import UsageError
from holdfast.records import SECOND, Instant

from .crashes import Crash, NoCrash, Recorded
from .logged_errors import logged_errors
from .replacements import Begun
from .simulated_processes import Processes, retry_unavailable
from .virtual import VirtualLoop, VirtualWorld, sweep

FOR_EVER_SECONDS = 1e9

MakeStore = Callable[[Callable[[], Instant]], Any]
MakeApp = Callable[[VirtualWorld, Any], App]


@dataclass
class Watch:
    """The crash to make, and callbacks for steps that begin and steps that are recorded."""

    crash: Crash = field(default_factory=NoCrash)
    begun: Begun | None = None
    recorded: Recorded | None = None


class Simulation:
    """One event loop, one store, and the workers on it."""

    def __init__(
        self, make_store: MakeStore, make_app: MakeApp, lease_seconds: float, begins_at: Instant, watch: Watch
    ) -> None:
        self._make_app, self._lease_seconds, self._begins_at = make_app, lease_seconds, begins_at
        # The loop is made last: it has to be closed, and making a store may fail.
        self.store = make_store(lambda: begins_at + self._loop.elapsed)
        self._loop = VirtualLoop()
        self.processes = Processes(
            self.store,
            watch.crash,
            lease_seconds,
            begins_at=begins_at,
            recorded=watch.recorded,
            thaw_on_claim=True,
        )
        self._workers: dict[VirtualWorld, Worker] = {}
        self._wait: float | None = None  # seconds to the next timer of the loop
        # The app of the test itself: it never crashes.
        self.app = make_app(VirtualWorld(begins_at=begins_at), self.store)

    @property
    def elapsed(self) -> int:
        """Return the microseconds since the rehearsal began."""
        return self._loop.elapsed

    @property
    def over(self) -> bool:
        """Return True when the simulation has been closed."""
        return self._loop.is_closed()

    @property
    def running(self) -> bool:
        """Return True while the loop runs: the caller is a workflow or a step."""
        return self._loop.is_running()

    @property
    def busy(self) -> bool:
        """Return True when a living worker holds a run."""
        return any(worker.busy for world, worker in self._workers.items() if not world.frozen)

    def begin(self) -> None:
        """Open the store, and start a worker."""
        self.do(self._begin())

    def do(self, call: Awaitable[Any]) -> Any:
        """Await a call here, and then run everything that it caused."""
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
        """Crash every worker, and start others."""
        for world in self._workers:
            world.freeze()
        if not self._loop.is_running():
            self._settle()

    def turn(self, until: int | None) -> bool:
        """Turn the clock to the next instant at which something happens, at most to `until`.

        Return False when nothing will ever happen.
        """
        self._refuse_inside()
        now = self._loop.elapsed
        due = None if self.busy else self._due()
        if self.busy or (due is not None and due <= now):
            # A worker holds a run, or is about to claim one: the timers of the loop say what comes next.
            due = None if self._wait is None else now + max(1, round(self._wait * SECOND))
        stops = [one for one in (due, until) if one is not None]
        if not stops:
            return False
        self._loop.leap_to(min(stops))
        self._settle()
        return True

    def close(self) -> None:
        """End all tasks, and close the store and the loop."""
        with logged_errors():  # crashed processes are thawed for it, and would log that they lost their runs
            sweep(self._loop)
        self._loop.run_until_complete(self.store.close())
        self._loop.close()

    def check(self) -> None:
        """Raise an error that a callback or a forgotten task has raised."""
        self._loop.check()

    def _refuse_inside(self) -> None:
        if self.over:
            raise UsageError("the rehearsal is over: look at its runs inside of its `with` block")
        if self._loop.is_running():
            raise UsageError(
                "a workflow or step cannot move the rehearsal that it runs in: only stage.crash() can"
            )

    async def _begin(self) -> None:
        await self.store.open()
        self.app.world.monotonic()  # binds the world to this loop: a thread may ask for the time later
        self.processes.start(self._work)

    async def _work(self, world: VirtualWorld, store: Any) -> None:
        app = self._make_app(world, store)

        async def entered() -> None:
            self._workers[world] = await app.worker(
                lease=self._lease_seconds, ttl=FOR_EVER_SECONDS, relay=False
            ).__aenter__()

        await retry_unavailable(entered)
        # The worker is entered and never left: the simulation ends before it could stop in an orderly way.
        await asyncio.sleep(FOR_EVER_SECONDS)

    def _settle(self) -> None:
        self._wait = self._loop.settle()
        while self.processes.any_crashed and self._loop.run_until_complete(self.processes.replace_crashed()):
            self._wait = self._loop.settle()

    def _due(self) -> int | None:
        """Return the instant at which the store next has something to do, on the loop's own clock."""
        due = self._loop.run_until_complete(self.store.due(tuple(self.app.workflows)))
        instants = [at for at in (due.claim_at, due.chore_at) if at is not None]
        return min(instants) - self._begins_at if instants else None


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call
