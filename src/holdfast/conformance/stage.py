"""The stage of the cases: a store whose clock can be turned, the faulty server, and the worker program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from uuid import UUID

import msgspec

from holdfast.engine.app.client import StoreClient
from holdfast.engine.worker.keeper import Keeper
from holdfast.http.serving import Server
from holdfast.lifecycle import Status
from holdfast.records import Instant, Run, Scope, Step
from holdfast.stores.memory import MemoryStore
from holdfast.world import RealWorld

from .faults import Fault, Kind
from .ledger import Ledger
from .mistakes import Wrong
from .process import Process
from .proxy import FaultyApi
from .rules import Rules
from .traffic import CLAIM, REGISTER, Exchange, Traffic

TYPE = "conformance.script.v1"
SLOTS = 4
TICK_SECONDS = 0.02  # between two rounds of the keeper
LOOK_SECONDS = 0.02  # between two looks at a condition, when no request comes
OUTPUT_SECONDS = 1.0  # for the last lines of a program that has ended
SECOND = 1_000_000
ENDED = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the kit. case_seconds: the time of one case; start_seconds: until the first claim."""

    command: tuple[str, ...]
    lease_ms: int = 1_000
    case_seconds: float = 20.0
    start_seconds: float = 60.0
    show: Callable[[str], None] = lambda _line: None


class Script(msgspec.Struct, frozen=True):
    """A run of the worker, and its ledger."""

    run: str
    ledger: Ledger


class Stage:
    """Everything that a case needs. `async with` starts the server; `worker_started` starts the program."""

    def __init__(self, options: Options) -> None:
        self.options, self._offset = options, 0
        self.lease_seconds = options.lease_ms / 1000
        self._world = RealWorld()
        self._store = MemoryStore(self._clock)
        self.client = StoreClient(self._store, self._world)
        self._keeper = Keeper(self._store)
        self.rules = Rules(options.lease_ms)
        self.api = FaultyApi(self.client, self.rules)
        self._server = Server(self.api, "127.0.0.1", 0)
        self.process: Process | None = None
        self.key = self.other_key = ""
        self._processes = self._ledgers = 0
        self.waits_for = "the worker"
        self.scripts: list[Script] = []  # of this case
        self.limit: asyncio.Timeout | None = None  # of this case
        self.may_end = False  # the case itself ends the program
        self._ticks: asyncio.Task[None] | None = None

    @property
    def traffic(self) -> Traffic:
        """The requests of this case."""
        return self.api.traffic

    async def __aenter__(self) -> Self:
        await self._store.open()
        self.key = (await self.client.create_key("worker", scopes=[Scope.WORK])).secret
        self.other_key = (await self.client.create_key("other worker", scopes=[Scope.WORK])).secret
        self.rules.key = self.key
        await self._server.begin()
        self._ticks = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_worker()
        if self._ticks is not None:
            self._ticks.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticks
        self.api.end()
        await self.api.stop_serving()
        await self._server.stop()
        await self.api.close()
        await self._store.close()

    # Time.

    def _clock(self) -> Instant:
        return self._world.now() + self._offset

    async def turn_clock(self, seconds: float) -> None:
        """Turn the clock of the store, do what is due then, and let open claims look again."""
        self._offset += int(seconds * SECOND)
        await self._keeper.tick()
        await asyncio.sleep(TICK_SECONDS)  # a claim that finds a run now is answered with it
        self.api.end_claims()

    async def _keep(self) -> None:
        while True:
            await self._keeper.tick()
            await asyncio.sleep(TICK_SECONDS)

    # The worker program.

    async def worker_started(self, key: str | None = None) -> Process:
        """Start a process of the program, and wait for its first claim. key: another key, which is refused;
        then the first request is enough.
        """
        self._processes += 1
        name = f"conformance-{self._processes}"
        environment = {
            "HOLDFAST_URL": self._server.url,
            "HOLDFAST_STORE": self._server.url,
            "HOLDFAST_KEY": self.key if key is None else key,
            "HOLDFAST_WORKER": name,
            "HOLDFAST_LEASE_MS": str(self.options.lease_ms),
            "HOLDFAST_SLOTS": str(SLOTS),
        }
        command, show = self.options.command, self.options.show
        seen = len(self.traffic.exchanges)
        self.process = process = await Process.start(command, environment, name, show)
        with self._extra_time():
            await self._begun(process, seen, claims=key is None)
        return process

    @contextmanager
    def _extra_time(self) -> Iterator[None]:
        """Leave the start of a program out of the time of a case: it may have to be compiled first."""
        limit, began = self.limit, _now()
        ends_at = None if limit is None else limit.when()
        if limit is None or ends_at is None:
            yield
            return
        limit.reschedule(ends_at + 2 * self.options.start_seconds)
        yield
        limit.reschedule(ends_at + _now() - began)

    async def _begun(self, process: Process, seen: int, *, claims: bool) -> None:
        until = _now() + self.options.start_seconds
        while not any(one.path == CLAIM or not claims for one in self.traffic.exchanges[seen:]):
            self.check_rules()
            if process.code is not None:
                await process.wait(OUTPUT_SECONDS)
                raise Wrong("not-started", f"it ended with code {process.code}: {process.last_words}")
            if _now() > until:
                what = "claim" if claims else "request"
                raise Wrong("not-started", f"no {what} within {self.options.start_seconds:g} s")
            await self._news()
        if claims and not any(one.path == REGISTER for one in self.traffic.exchanges[seen:]):
            raise Wrong("no-register", "the first claim came before any POST /workers/register")

    async def stop_worker(self) -> None:
        """End the process of the program at once."""
        if self.process is not None:
            await self.process.kill()
            self.process = None

    def terminate(self) -> None:
        """Send SIGTERM to the process of the program."""
        assert self.process is not None
        self.process.signal(signal.SIGTERM)

    # Runs.

    def ledger(self) -> Ledger:
        """Return a new ledger."""
        self._ledgers += 1
        name = str(self._ledgers)
        self.api.ledgers[name] = ledger = Ledger(self._server.url, name)
        return ledger

    async def start(self, *do: dict[str, Any], ledger: Ledger | None = None, **options: Any) -> Script:
        """Start a run with these instructions, and with options of a start."""
        book = ledger or self.ledger()
        handle = await self.client.start(TYPE, {"ledger": book.url, "do": list(do)}, **options)
        script = Script(str(handle.id), book)
        self.scripts.append(script)
        return script

    async def leave_case(self) -> None:
        """End the faults of a case, and cancel the runs that are still open."""
        self.api.end()
        for script in self.scripts:
            if (await self.run(script)).status not in ENDED:
                await self.client.cancel(UUID(script.run))
        self.scripts.clear()

    async def run(self, script: Script) -> Run:
        """Read a run."""
        return await self.client.known(UUID(script.run))

    async def steps(self, script: Script) -> dict[str, Step]:
        """Read the recorded steps of a run, by key."""
        return {one.key: one for one in await self.client.steps(UUID(script.run))}

    async def ended(self, script: Script, watch: Callable[[], None] | None = None) -> Run:
        """Wait until the run has succeeded; return it. watch: raises a mistake as soon as it is seen."""
        found = await self.until_run(script, ENDED, f"run {script.run} to end", watch)
        if found.status is not Status.SUCCEEDED:
            error = "" if found.error is None else f", {found.error.kind}: {found.error.message}"
            raise Wrong("wrong-status", f"the run is {found.status}{error}")
        return found

    async def until_run(
        self, script: Script, statuses: Container[Status], what: str, watch: Callable[[], None] | None = None
    ) -> Run:
        """Wait until the run has one of these statuses."""
        self.waits_for = what
        while (found := await self.run(script)).status not in statuses:
            if watch is not None:
                watch()
            await self._change()
        return found

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition on what was seen holds."""
        self.waits_for = what
        while not condition():
            await self._change()

    async def within(self, seconds: float, condition: Callable[[], bool]) -> bool:
        """Wait so long for a condition; return whether it has come to hold."""
        until = _now() + seconds
        while not condition() and _now() < until:
            await self._change()
        return condition()

    async def quiet(self, seconds: float) -> None:
        """Watch for some time; a mistake that is seen meanwhile ends the case."""
        await self.within(seconds, lambda: False)

    async def _change(self) -> None:
        """Wait for the next request or answer, or a short time; raise the first mistake."""
        await self._news()
        self.check_rules()
        self.check_alive()

    async def _news(self) -> None:
        self.api.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self.api.changed.wait()

    def check_rules(self) -> None:
        """Raise the first mistake of this case, if there is one."""
        if self.rules.first is not None:
            raise self.rules.first

    def check_alive(self) -> None:
        """Raise a mistake if the program has ended by itself."""
        if self.process is not None and self.process.code is not None and not self.may_end:
            raise Wrong("ended", f"with code {self.process.code}: {self.process.last_words}")

    # Faults.

    def fault(
        self, kind: Kind, matches: Callable[[Exchange], bool], times: int = 1, *, seconds: float = 0.0
    ) -> Fault:
        """Let a fault hit from now on."""
        return self.api.add(Fault(kind, matches, times, seconds=seconds))


def _now() -> float:
    return asyncio.get_running_loop().time()
