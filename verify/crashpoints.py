"""crashpoints: at every store call in turn the caller dies, its reply is lost, or the call goes twice.

Or it stands still until another has taken over, and then sends what it was about to send. Each time
another goes on, or the same one. What comes out must be what comes out undisturbed.
The whole engine runs in virtual time, in one process; dying is standing still for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.engine.app import App
from holdfast.lifecycle import FINAL
from holdfast.records import Item, RunFilter, StepWrite
from holdfast.testing.cast import Cast, patient
from holdfast.testing.complaints import complaints
from holdfast.testing.crashes import Crash, Mode, modes_of
from holdfast.testing.virtual import VirtualWorld, play

from .evidence import Evidence, gathered
from .invariants import INVARIANTS, OVERTAKEN
from .journey import AMOUNTS, JOURNEY, LOGS, PORTER, Pages, name_journey
from .ledger import Entry
from .report import SHOWN, Check, Report, progress
from .sabotage import BLIND_RESEND, NO_FENCE, Blind, unfenced

LEASE_SECONDS = 3.0
LIMIT_SECONDS = 600.0  # virtual ones
QUIET_SECONDS = 2 * LEASE_SECONDS
LOOK_SECONDS = 0.1
RUNS = 2
ENOUGH = 10

UNHURT = {Mode.REPLY_LOST, Mode.NEVER_SENT, Mode.SENT_TWICE}
REVEALED_BY = {BLIND_RESEND: Mode.REPLY_LOST, NO_FENCE: Mode.STAND_STILL}

Outcome = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Played:
    """How one play ended."""

    crash: Crash
    evidence: Evidence
    outcome: Outcome


class Stage:
    """One play: a store, a client, a worker, and whoever takes their place."""

    def __init__(
        self, make_store: Callable[[Callable[[], int]], Any], crash: Crash, sabotage: str | None, seed: int
    ) -> None:
        self._crash, self._sabotage = crash, sabotage
        clock = VirtualWorld().now
        self._store, self._pages = make_store(clock), Pages(clock)
        self._cast = Cast(self._store, crash, LEASE_SECONDS, seed=seed, recorded=self._note)
        self._acked: list[Any] = []

    async def play(self) -> Played:
        await self._store.open()
        self._cast.enter(self._be_client)
        self._cast.enter(self._be_worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_SECONDS):
                while not await self._is_over():
                    await self._cast.go_on()
                    await asyncio.sleep(LOOK_SECONDS)
                await asyncio.sleep(QUIET_SECONDS)
        evidence = await gathered(self._store, self._pages.entries, self._acked, amounts=AMOUNTS, logs=LOGS)
        return Played(self._crash, evidence, outcome(evidence))

    def _note(self, item: Item, step: StepWrite) -> None:
        self._pages.note(Entry(kind="recorded", run=str(item.run), step=step.key, fence=item.fence))

    def _app(self, world: VirtualWorld, store: Any) -> App:
        seen = Blind(store) if self._sabotage == BLIND_RESEND else store
        return name_journey(App(seen, world=world), self._pages)

    async def _is_over(self) -> bool:
        runs = await self._store.list(RunFilter())
        ended = len(runs) == len(self._acked) == RUNS and all(run.status in FINAL for run in runs)
        return ended and not self._cast.standing_still

    async def _be_worker(self, world: VirtualWorld, store: Any) -> None:
        app = self._app(world, store)
        # Entered and never left: the play ends under it, and it must not begin to say goodbye then.
        await patient(lambda: app.worker(lease=LEASE_SECONDS, slots=4).__aenter__())
        await asyncio.sleep(LIMIT_SECONDS * 2)

    async def _be_client(self, world: VirtualWorld, store: Any) -> None:
        """Knows no more than a caller does: what got no answer is asked again, under the same key."""
        app = self._app(world, store)
        porter = await patient(lambda: app.start(PORTER, key="porter"))
        journey = await patient(lambda: app.start(JOURNEY, key="journey"))
        self._acked = [porter.id, journey.id]
        await patient(lambda: app.emit("early", "a letter", id="early"))
        await asyncio.sleep(5)
        await patient(lambda: app.emit("late", "another", id="late"))
        await patient(journey.result)


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

    def once(crash: Crash) -> Played:
        return play(lambda: Stage(make, crash, sabotage, seed).play())

    calm = once(Crash())
    played: list[Played] = []
    broken = unfenced() if sabotage == NO_FENCE else contextlib.nullcontext()
    with progress() as tell, complaints() as heard, broken:
        for made in calm.crash.made if calm.evidence.finished == RUNS else ():
            if sum(one.evidence.finished != RUNS for one in played) >= ENOUGH:
                break  # red as it is, and every play that does not end takes its time
            tell(f"{name}: call {made.number} of {len(calm.crash.made)} ({made})")
            modes = modes_of(made, briefly=short)
            if sabotage is not None:
                modes = (REVEALED_BY[sabotage],) if made.verb == "commit" else ()
            played += [once(Crash(made.number, mode)) for mode in modes]
    _judge(report, calm, played)
    report.expect("the engine itself never failed", not heard, "; ".join(heard[:SHOWN]))
    report.figures |= {
        "calls": len(calm.crash.made), "plays": len(played),
        "verbs": len({made.verb for made in calm.crash.made}), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _judge(report: Report, calm: Played, played: Sequence[Played]) -> None:
    for name, invariant in INVARIANTS.items():
        cases = [f"{_where(one)}: {case}" for one in (calm, *played) for case in invariant(one.evidence)]
        report.checks.append(Check(name, len(cases), tuple(cases[:SHOWN]), invariant=True))
    # Nobody died and nobody stood still: an answer that did not come must cost no lease.
    unhurt = [one for one in played if one.crash.mode in UNHURT]
    for name, invariant in OVERTAKEN.items():
        cases = [f"{_where(one)}: {case}" for one in unhurt for case in invariant(one.evidence)]
        report.checks.append(Check(name, len(cases), tuple(cases[:SHOWN]), invariant=True))
    other = [f"{_where(one)}: {one.outcome}" for one in played if one.outcome != calm.outcome]
    report.checks.append(
        Check("the outcome is that of the calm play", len(other), tuple(other[:SHOWN]), invariant=True)
    )
    missed = [_where(one) for one in played if one.crash.fired is None]
    report.expect("every fault fired", not missed, ", ".join(missed[:SHOWN]))
    report.expect("the calm play arrives", calm.evidence.finished == RUNS, str(calm.outcome))


def _where(one: Played) -> str:
    return f"{one.crash.mode} call {one.crash.at} ({one.crash.fired})" if one.crash.at else "calm"
