"""Lost sessions: a server ends sessions of Holdfast, one after the other, under load.

One worker only waits for events: its delays show whether hints still reach it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.records import SECOND
from verify.checks.evidence import Evidence
from verify.checks.invariants import OVERTAKEN
from verify.checks.report import Check, Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, Environment
from verify.environment.ledger import Entry
from verify.environment.processes import Fleet
from verify.workloads.load import Load
from verify.workloads.workflows import LISTENER, work

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 4.0
RUNS_A_SECOND = 8
EVENT_SECONDS = 0.4  # from one event to the next
PARKED_SECONDS = 0.15  # until a run waits for its event
SHARE_LISTENING = 0.4  # share of listening sessions among the ended ones
SHARE_FIRED = 0.7  # share of the planned kills that must happen: a busy machine is slow


class Killer(ABC):
    """A session that ends other sessions."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.count = self.listening = 0

    @abstractmethod
    def sessions(self) -> Sequence[tuple[Any, bool]]:
        """Return the sessions of the store, and True for those that listen."""

    @abstractmethod
    def end(self, session: Any) -> None:
        """End a session."""

    async def kill_for(self, seconds: float, every: float) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self._kill_listening)
        while time.monotonic() - began < seconds:
            await asyncio.sleep(every)
            await asyncio.to_thread(self._kill)

    def _kill_listening(self) -> None:
        """End every listening session once: by chance alone the one that does not recover may be left out."""
        for session, listens in self.sessions():
            if listens:
                self._end(session)
                self.listening += 1

    def _kill(self) -> None:
        sessions = self.sessions()
        listening = [one for one, listens in sessions if listens]
        among = [one for one, listens in sessions if not listens]
        if listening and (not among or self._dice.random() < SHARE_LISTENING):
            among = listening
        if not among:
            return
        self._end(self._dice.choice(among))
        self.listening += among is listening

    def _end(self, session: Any) -> None:
        self.end(session)
        self.count += 1


async def lost_sessions(
    report: Report, env: Environment, killer: Killer, seconds: float, every: float, sabotage: str | None,
    heard_seconds: float,
) -> Report:  # fmt: skip
    """End sessions of workers and client again and again. heard_seconds: 99 % of the events arrive within."""
    began = time.monotonic()
    with _listener(env, sabotage):
        # The start of a process takes a while, and is not measured.
        await _emit_one(env, "reveille")
        await env.until(lambda: True, 1, lambda _: None)
        load = Load(env, round(RUNS_A_SECOND * seconds), STEPS, seconds)
        events = round(seconds / EVENT_SECONDS)
        emitting = asyncio.create_task(_emit_events(env, events))
        killing = asyncio.create_task(killer.kill_for(seconds, every))
        total = load.total + events + 1
        with progress() as tell:
            await env.until(
                lambda: killing.done() and emitting.done(),
                total,
                lambda done: tell(f"{done} of {total} runs finished, {killer.count} sessions ended"),
                STALL_SECONDS if sabotage is None else BROKEN_SECONDS,
            )
        await killing
        await emitting
        await load.end()
    evidence = await env.evidence()
    # No process died: a lost session may cost no lease and repeat no effect.
    report.judge(evidence, OVERTAKEN)
    waits = sorted(_heard_after(evidence))
    late = waits[-1] if len(waits) < 100 else waits[int(len(waits) * 0.99)]
    slow = () if late <= heard_seconds else (f"{late:.2f} s",)
    report.checks.append(
        Check(f"E11 event heard later than {heard_seconds:g} s", len(slow), slow, invariant=True)
    )
    done, planned = sum(1 for _ in evidence.succeeded()), int(seconds / every * SHARE_FIRED)
    report.expect("all succeeded", done == total, "\n".join([f"{done} of {total}", *env.stalled]))
    report.expect(f"sessions were ended: {planned}", killer.count >= planned, str(killer.count))
    report.expect("of those that listen as well", killer.listening >= planned // 5, str(killer.listening))
    report.figures |= {
        **load.figures, "listener": events, "ended": killer.count, "of_them_listening": killer.listening,
        "heard_after_p50": round(waits[len(waits) // 2], 3), "p99": round(late, 3),
        "takeovers": len(evidence.rows("lease_expired")), "asked_again_by_the_client": env.unanswered,
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


@contextmanager
def _listener(env: Environment, sabotage: str | None) -> Iterator[None]:
    options = {"lease": LEASE_SECONDS, "slots": 4, "knows": "listener"}
    with Fleet(work, (env.url, env.ledger.path, str(env.log), sabotage, options), 1):
        yield


async def _emit_events(env: Environment, events: int) -> None:
    """Start one run after the other that waits for an event, and emit the event."""
    for n in range(events):
        run = await _emit_one(env, f"event {n}")
        await env.ledger.write(Entry(kind="emitted", run=str(run)))
        await asyncio.sleep(EVENT_SECONDS - PARKED_SECONDS)


async def _emit_one(env: Environment, topic: str) -> UUID:
    (run,) = await env.start(LISTENER, topic)
    await asyncio.sleep(PARKED_SECONDS)
    await env.ask(partial(env.app.emit, topic, id=topic))
    return run


def _heard_after(evidence: Evidence) -> Iterator[float]:
    """Return the seconds from an acknowledged event to the step after it, by the clock of the ledger."""
    effects = evidence.of("effect")
    for (run, _), emitted in evidence.of("emitted").items():
        heard = min((entry.at for entry in effects[run, "heard"]), default=math.inf)
        yield max(0.0, (heard - emitted[0].at) / SECOND)
