"""crashpoints: at every store call in turn the caller dies, before or after, or its reply is lost.

Or it stands still until another has taken over, and then sends what it was about to send. Each time
another goes on, or the same one. What comes out must be what comes out undisturbed.
The whole engine runs in virtual time, in one process; dying is standing still for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.engine.app import App
from holdfast.errors import Unavailable
from holdfast.lifecycle import FINAL, Status
from holdfast.records import RunFilter
from holdfast.testing.virtual import VirtualWorld, play

from .evidence import Evidence, gathered
from .faulty import Fault, Faulty, Mode, modes_of
from .invariants import INVARIANTS, OVERTAKEN
from .journey import AMOUNTS, JOURNEY, LOGS, PORTER, Pages, name_journey
from .report import SHOWN, Check, Report, progress
from .sabotage import BLIND_RESEND, NO_FENCE, Blind, unfenced

LEASE_SECONDS = 3.0
LIMIT_SECONDS = 600.0  # virtual ones
QUIET_SECONDS = 2 * LEASE_SECONDS
LOOK_SECONDS = 0.1
RUNS = 2
ENOUGH = 10

REVEALED_BY = {BLIND_RESEND: Mode.REPLY_LOST, NO_FENCE: Mode.STAND_STILL}

Outcome = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Played:
    """How one play ended."""

    fault: Fault
    evidence: Evidence
    outcome: Outcome


class Stage:
    """One play: a store, a client, a worker, and whoever takes their place."""

    def __init__(
        self, make_store: Callable[[Callable[[], int]], Any], fault: Fault, sabotage: str | None, seed: int
    ) -> None:
        self._fault, self._sabotage, self._seed = fault, sabotage, seed
        clock = VirtualWorld().now
        self._store, self._pages = make_store(clock), Pages(clock)
        self._acked: list[Any] = []
        self._actors: list[tuple[VirtualWorld, Callable[[App], Coroutine[Any, Any, None]]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._fences: dict[UUID, int] | None = None  # what was held when someone fell
        self._fell_at = 0.0

    async def play(self) -> Played:
        await self._store.open()
        self._enter(self._be_client)
        self._enter(self._be_worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_SECONDS):
                while not await self._is_over():
                    await self._go_on()
                    await asyncio.sleep(LOOK_SECONDS)
                await asyncio.sleep(QUIET_SECONDS)
        evidence = await gathered(self._store, self._pages.entries, self._acked, amounts=AMOUNTS, logs=LOGS)
        return Played(self._fault, evidence, outcome(evidence))

    async def _go_on(self) -> None:
        """Replace the one who fell; if he only stands still, let him go on once another holds his runs."""
        fallen = next(((world, role) for world, role in self._actors if world.frozen), None)
        if fallen is None:
            return
        world, role = fallen
        if self._fences is None:
            self._fences = await self._held_under()
            self._fell_at = world.monotonic()
            self._enter(role)
        elif self._fault.mode is Mode.STAND_STILL:
            now = await self._held_under()
            overtaken = any(fence > self._fences.get(run, 0) for run, fence in now.items())
            if overtaken or world.monotonic() - self._fell_at > 3 * LEASE_SECONDS:
                self._fault.thaw(world)

    async def _held_under(self) -> dict[UUID, int]:
        runs = await self._store.list(RunFilter(statuses=(Status.LEASED,)))
        return {run.id: run.fence for run in runs}

    def _enter(self, role: Callable[[App], Coroutine[Any, Any, None]]) -> None:
        world = VirtualWorld(self._seed * 100 + len(self._actors))
        self._actors.append((world, role))
        store: Any = Faulty(self._store, self._fault, world, self._pages)
        if self._sabotage == BLIND_RESEND:
            store = Blind(store)
        app = name_journey(App(store, world=world), self._pages)
        self._tasks.append(world.spawn(role(app), role.__name__))

    async def _is_over(self) -> bool:
        runs = await self._store.list(RunFilter())
        still = self._fault.mode is Mode.STAND_STILL and any(world.frozen for world, _ in self._actors)
        return (
            len(runs) == len(self._acked) == RUNS and all(run.status in FINAL for run in runs) and not still
        )

    async def _be_worker(self, app: App) -> None:
        # Entered and never left: the play ends under it, and it must not begin to say goodbye then.
        await patient(lambda: app.worker(lease=LEASE_SECONDS, slots=4).__aenter__())
        await asyncio.sleep(LIMIT_SECONDS * 2)

    async def _be_client(self, app: App) -> None:
        """Knows no more than a caller does: what got no answer is asked again, under the same key."""
        porter = await patient(lambda: app.start(PORTER, key="porter"))
        journey = await patient(lambda: app.start(JOURNEY, key="journey"))
        self._acked = [porter.id, journey.id]
        await patient(lambda: app.emit("early", "a letter", id="early"))
        await asyncio.sleep(5)
        await patient(lambda: app.emit("late", "another", id="late"))
        await patient(journey.result)


async def patient(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.1)


def outcome(evidence: Evidence) -> Outcome:
    """What must be the same whatever happened: how it ended, with what, over which steps."""
    told: list[object] = []
    for run in evidence.runs.values():
        steps = sorted((step.key, step.kind, step.status) for step in evidence.steps[run.id])
        result = {name: value for name, value in (run.result or {}).items() if name != "fence"}
        told.append((run.status, result, run.last_error, steps))
    return tuple(told)


def stores() -> dict[str, Callable[[Callable[[], int]], Any]]:
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.sqlite import SqliteStore

    return {
        "memory": lambda clock: MemoryStore(clock=clock),
        "sqlite": lambda clock: SqliteStore(":memory:", clock=clock),
    }


def crashpoints(
    names: Sequence[str] = ("memory", "sqlite"),
    sabotage: str | None = None,
    seed: int = 0,
    *,
    short: bool = False,
) -> list[Report]:
    """Every call, every mode, on every store. Short: calls that find nothing to do only see a death."""
    return [_on(name, sabotage, seed, short=short) for name in names]


def _on(name: str, sabotage: str | None, seed: int, *, short: bool) -> Report:
    report, began, make = Report(f"crashpoints {name}"), time.monotonic(), stores()[name]

    def once(fault: Fault) -> Played:
        return play(lambda: Stage(make, fault, sabotage, seed).play())

    calm = once(Fault())
    played: list[Played] = []
    broken = unfenced() if sabotage == NO_FENCE else contextlib.nullcontext()
    with progress() as tell, _complaints() as complaints, broken:
        for n, verb in enumerate(calm.fault.verbs if calm.evidence.finished == RUNS else (), 1):
            if sum(one.evidence.finished != RUNS for one in played) >= ENOUGH:
                break  # red as it is, and every play that does not end takes its time
            tell(f"{name}: call {n} of {calm.fault.calls} ({verb})")
            modes = modes_of(verb, briefly=short and n in calm.fault.idle)
            if sabotage is not None:
                modes = (REVEALED_BY[sabotage],) if verb == "commit" else ()
            played += [once(Fault(n, mode)) for mode in modes]
    _judge(report, calm, played)
    report.expect("the engine itself never failed", not complaints, "; ".join(complaints[:SHOWN]))
    report.figures |= {
        "calls": calm.fault.calls, "plays": len(played),
        "verbs": len(set(calm.fault.verbs)), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the engine logs as an error of its own; its warnings of a failing store are what it should say."""
    log, handler = logging.getLogger("holdfast"), _Complaints()
    log.addHandler(handler)
    propagated, log.propagate = log.propagate, False
    try:
        yield handler.heard
    finally:
        log.removeHandler(handler)
        log.propagate = propagated


def _judge(report: Report, calm: Played, played: Sequence[Played]) -> None:
    for name, invariant in INVARIANTS.items():
        cases = [f"{_where(one)}: {case}" for one in (calm, *played) for case in invariant(one.evidence)]
        report.checks.append(Check(name, len(cases), tuple(cases[:SHOWN]), invariant=True))
    # Nobody died and nobody stood still: an answer that did not come must cost no lease.
    unhurt = [one for one in played if one.fault.mode in {Mode.REPLY_LOST, Mode.NEVER_SENT}]
    for name, invariant in OVERTAKEN.items():
        cases = [f"{_where(one)}: {case}" for one in unhurt for case in invariant(one.evidence)]
        report.checks.append(Check(name, len(cases), tuple(cases[:SHOWN]), invariant=True))
    other = [f"{_where(one)}: {one.outcome}" for one in played if one.outcome != calm.outcome]
    report.checks.append(
        Check("the outcome is that of the calm play", len(other), tuple(other[:SHOWN]), invariant=True)
    )
    missed = [_where(one) for one in played if one.fault.fired is None]
    report.expect("every fault fired", not missed, ", ".join(missed[:SHOWN]))
    report.expect("the calm play arrives", calm.evidence.finished == RUNS, str(calm.outcome))


def _where(one: Played) -> str:
    return f"{one.fault.mode} call {one.fault.at} ({one.fault.fired})" if one.fault.at else "calm"
