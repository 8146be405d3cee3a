"""pg-backend-kill: sessions of ours are ended by the server, one after the other, under load.

One worker has nothing to do but to wait for events: whether hints still reach it shows in how soon it hears.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from uuid import UUID

import psycopg

from holdfast.records import SECOND
from holdfast.stores.postgres.address import parsed

from .evidence import Evidence
from .invariants import OVERTAKEN
from .ledger import Entry
from .load import Load
from .places import POSTGRES
from .processes import Fleet
from .report import Check, Report, progress
from .scene import BROKEN_SECONDS, STALL_SECONDS, Scene, scene
from .work import BELL, work

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 4.0
RUNS_A_SECOND = 8
BELL_SECONDS = 0.4  # from one to the next
PARKED_SECONDS = 0.15  # until a run waits for its bell
HEARD_SECONDS = 1.0  # within which nearly all are heard; without hints it takes ten
SHARE_LISTENING = 0.4  # of the sessions that are ended
SHARE_FIRED = 0.7  # of the planned: a busy machine is slow
SESSIONS = """
select pid, query ilike 'listen %' or query = 'select 1' from pg_stat_activity
where datname = current_database() and application_name = 'holdfast'
"""


async def pg_backend_kill(
    seconds: float = 60.0, every: float = 0.3, sabotage: str | None = None, seed: int = 0
) -> Report:
    """pg_terminate_backend again and again, also of those that LISTEN, of workers and client alike."""
    report, began = Report("pg-backend-kill"), time.monotonic()
    async with scene(WORKERS, None, POSTGRES, lease=LEASE_SECONDS, slots=4) as at:
        with _listener(at, sabotage), Killer(at.url, random.Random(seed)) as killer:
            # A process takes a while to be there, and that is not what is measured.
            await _ring_once(at, "reveille")
            await at.until(lambda: True, 1, lambda _: None)
            load = Load(at, round(RUNS_A_SECOND * seconds), STEPS, seconds)
            bells = round(seconds / BELL_SECONDS)
            ringing = asyncio.create_task(_ring(at, bells))
            killing = asyncio.create_task(killer.kill_for(seconds, every))
            total = load.total + bells + 1
            with progress() as tell:
                await at.until(
                    lambda: killing.done() and ringing.done(),
                    total,
                    lambda done: tell(f"{done} of {total} runs finished, {killer.count} sessions ended"),
                    STALL_SECONDS if sabotage is None else BROKEN_SECONDS,
                )
            await killing
            await ringing
            await load.end()
        evidence = await at.evidence()
    # Nobody died: a session that is lost may cost neither a lease nor an effect.
    report.judge(evidence, OVERTAKEN)
    waits = sorted(_heard_after(evidence))
    late = waits[-1] if len(waits) < 100 else waits[int(len(waits) * 0.99)]
    slow = () if late <= HEARD_SECONDS else (f"{late:.2f} s",)
    report.checks.append(
        Check(f"E11 bell heard later than {HEARD_SECONDS:g} s", len(slow), slow, invariant=True)
    )
    done, planned = sum(1 for _ in evidence.succeeded()), int(seconds / every * SHARE_FIRED)
    report.expect("all succeeded", done == total, "\n".join([f"{done} of {total}", *at.stalled]))
    report.expect(f"sessions were ended: {planned}", killer.count >= planned, str(killer.count))
    report.expect("of those that listen as well", killer.listening >= planned // 5, str(killer.listening))
    report.figures |= {
        **load.figures, "bells": bells, "ended": killer.count, "of_them_listening": killer.listening,
        "heard_after_p50": round(waits[len(waits) // 2], 3), "p99": round(late, 3),
        "takeovers": len(evidence.rows("lease_expired")), "asked_again_by_the_client": at.unanswered,
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


@contextmanager
def _listener(at: Scene, sabotage: str | None) -> Iterator[None]:
    options = {"lease": LEASE_SECONDS, "slots": 4, "knows": "bells"}
    with Fleet(work, (at.url, at.book.path, str(at.log), sabotage, options), 1):
        yield


async def _ring(at: Scene, bells: int) -> None:
    """One run after the other waits, and is told."""
    for n in range(bells):
        run = await _ring_once(at, f"bell {n}")
        await at.book.tell(Entry(kind="rung", run=str(run)))
        await asyncio.sleep(BELL_SECONDS - PARKED_SECONDS)


async def _ring_once(at: Scene, topic: str) -> UUID:
    (run,) = await at.start(BELL, topic)
    await asyncio.sleep(PARKED_SECONDS)
    await at.ask(partial(at.app.emit, topic, id=topic))
    return run


def _heard_after(evidence: Evidence) -> Iterator[float]:
    """Seconds, by the clock of the ledger: from an event that was acknowledged to the step behind it."""
    effects = evidence.of("effect")
    for (run, _), rung in evidence.of("rung").items():
        heard = min((entry.at for entry in effects[run, "heard"]), default=math.inf)
        yield max(0.0, (heard - rung[0].at) / SECOND)


class Killer:
    """Ends sessions of the store, from a session of its own."""

    def __init__(self, url: str, dice: random.Random) -> None:
        self._dice = dice
        self._connection = psycopg.connect(parsed(url).dsn, autocommit=True)
        self.count = self.listening = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    async def kill_for(self, seconds: float, every: float) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self._kill_listening)
        while time.monotonic() - began < seconds:
            await asyncio.sleep(every)
            await asyncio.to_thread(self._kill)

    def _kill_listening(self) -> None:
        """Every one of them once: chance alone may leave out the one that is deaf afterwards."""
        for pid, listens in self._connection.execute(SESSIONS).fetchall():
            if listens:
                self._end(pid)
                self.listening += 1

    def _kill(self) -> None:
        sessions = self._connection.execute(SESSIONS).fetchall()
        listening = [pid for pid, listens in sessions if listens]
        among: list[Any] = [pid for pid, listens in sessions if not listens]
        if listening and (not among or self._dice.random() < SHARE_LISTENING):
            among = listening
        if not among:
            return
        self._end(self._dice.choice(among))
        self.listening += among is listening

    def _end(self, pid: int) -> None:
        self._connection.execute("select pg_terminate_backend(%s)", (pid,))
        self.count += 1
