"""pg-outages: a server is stopped and killed in several ways under load. Every run ends within a minute."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from verify.checks.report import Report
from verify.environment.environment import LOOK_SECONDS, STALL_SECONDS, Environment, environment
from verify.environment.stores import chosen_version, database
from verify.workloads.load import Load
from verify.workloads.workflows import LISTENER

if TYPE_CHECKING:
    from servers.postgres import Postgres

STEPS = 5
SLOTS = 8
RUNS_A_SECOND = 10
CALM_SECONDS = (0.1, 2.5)  # between two outages
DOWN_SECONDS = (0.0, 1.5)  # on top of the server's own start
EVENT_SECONDS = 0.5  # from one event to the next
PARKED_SECONDS = (0.0, 0.3)  # from the start of a run to its event
DUMP_SECONDS = 1.0  # for workers to write down what they do
DUMP_LINES = 2000
WAYS = ("fast", "immediate", "postmaster", "kill")  # two modes of pg_ctl stop; SIGKILL to one or to all
# MemoryLedger are written all the time, so that a kill may fall into it.
BUSY_PAGES = {"shared_buffers": "2MB", "bgwriter_delay": "10ms", "bgwriter_lru_maxpages": "1000"}
SESSIONS = """
select pid, state, wait_event_type, wait_event, xact_start, query_start, left(query, 120)
from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""
OPEN_RUNS = "select to_json(r) from workflow.workflow_run as r where finished_at is null limit 20"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a round."""

    outages: int = 4
    workers: int = 3
    lease: float = 30.0
    fsync: bool = False
    full_ledger: bool = True

    @property
    def server(self) -> dict[str, str]:
        return {**BUSY_PAGES, "full_page_writes": "on" if self.full_ledger else "off"}


@dataclass(slots=True)
class Round:
    """One round and its result."""

    seed: int
    ways: list[str] = field(default_factory=list)
    runs: int = 0
    finished: int = 0
    waited: float = 0.0  # seconds from the last outage and the last start to the last end of a run
    takeovers: int = 0
    stalled: list[str] = field(default_factory=list)
    # tracebacks in the logs of workers: an outage must not cause any
    odd: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the round in one line."""
        return (
            f"seed {self.seed}: {' '.join(self.ways)}; {self.finished} of {self.runs} runs ended, "
            f"the last {self.waited:.1f} s after all was calm, {self.takeovers} takeovers"
        )


async def pg_outages(rounds: int = 5, setting: Setting | None = None, seed: int = 0) -> Report:
    """Run the rounds. A run that is open 60 s after the last outage is a stall, and ends the experiment."""
    report, began, setting = Report("pg-outages"), time.monotonic(), setting or Setting()
    played: list[Round] = []
    while len(played) < rounds and not any(one.stalled for one in played):
        one = Round(seed + len(played))
        played.append(one)
        await _play(one, setting, report)
        print(f"    round {len(played)}, {one}", flush=True)
    stalls = [case for one in played for case in one.stalled]
    odd = [case for one in played for case in one.odd]
    report.expect("all runs ended", not stalls, "\n".join(stalls))
    report.expect("no worker logged a traceback", not odd, "\n".join(odd[:3]))
    report.expect(f"rounds: {rounds}", len(played) == rounds)
    report.figures |= {
        "rounds": len(played), "outages": sum(len(one.ways) for one in played),
        "runs": sum(one.finished for one in played), "takeovers": sum(one.takeovers for one in played),
        "longest_wait": round(max(one.waited for one in played), 1), "workers": setting.workers,
        "lease": setting.lease, "fsync": setting.fsync, "full_page_writes": setting.full_ledger,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _play(one: Round, setting: Setting, report: Report) -> None:
    from servers.postgres import running_postgres

    dice = random.Random(one.seed)
    seconds = setting.outages * (CALM_SECONDS[1] + DOWN_SECONDS[1])
    with ExitStack() as stack:
        making = running_postgres(chosen_version(), fsync=setting.fsync, settings=setting.server)
        server = await asyncio.to_thread(stack.enter_context, making)
        name = stack.enter_context(database(server))
        options = {"lease": setting.lease, "slots": SLOTS, "knows": "all"}
        async with environment(setting.workers, None, server.url(name), **options) as env:
            load = Load(env, round(RUNS_A_SECOND * seconds), STEPS, seconds)
            events = round(seconds / EVENT_SECONDS)
            one.runs = load.total + events
            emitting = asyncio.create_task(_emit_events(env, events, dice))
            await _hurt(server, setting.outages, dice, one.ways)
            await asyncio.gather(emitting, load.started())
            await _watch(env, one)
            if one.stalled:
                one.stalled += _server_says(server, name)
            await load.end()
            evidence = await env.evidence()
            one.odd = _tracebacks(env.log)
    one.takeovers = len(evidence.rows("lease_expired"))
    judged = Report("round")
    judged.judge(evidence)
    report.checks += [check for check in judged.checks if not check.ok]


async def _hurt(server: Postgres, outages: int, dice: random.Random, ways: list[str]) -> None:
    for _ in range(outages):
        await asyncio.sleep(dice.uniform(*CALM_SECONDS))
        ways.append(dice.choice(WAYS))
        await asyncio.to_thread(end, server, ways[-1])
        await asyncio.sleep(dice.uniform(*DOWN_SECONDS))
        await asyncio.to_thread(server.start)


def end(server: Postgres, way: str) -> None:
    """End the server in one of the WAYS."""
    match way:
        case "fast":
            server.stop()
        case "immediate":
            server.stop_at_once()
        case "postmaster":
            server.kill_postmaster()
        case _:
            server.kill()


async def _emit_events(env: Environment, events: int, dice: random.Random) -> None:
    """Start runs that wait for an event each, and emit the event before or after the wait is open."""
    for n in range(events):
        topic = f"event {n}"
        await env.start(LISTENER, topic)
        await asyncio.sleep(dice.uniform(*PARKED_SECONDS))
        await env.ask(partial(env.app.emit, topic, id=topic))
        await asyncio.sleep(EVENT_SECONDS / 2)


async def _watch(env: Environment, one: Round) -> None:
    """Wait until all runs have ended; after a minute note the open runs and the stacks of the workers."""
    calm_at = time.monotonic()
    while one.waited <= STALL_SECONDS:
        env.fleet.supervise()
        one.finished = await env.finished()
        one.waited = time.monotonic() - calm_at
        if one.finished >= one.runs:
            return
        await asyncio.sleep(LOOK_SECONDS)
    for process in env.fleet.members:
        os.kill(process.pid, signal.SIGUSR1)
    await asyncio.sleep(DUMP_SECONDS)
    one.stalled = [str(one), *await env.standing_still(DUMP_LINES)]


def _server_says(server: Postgres, name: str) -> list[str]:
    import psycopg

    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        rows = connection.execute(OPEN_RUNS).fetchall() + connection.execute(SESSIONS).fetchall()
    return [*map(str, rows), *server.log().splitlines()]


def _tracebacks(log: Path) -> list[str]:
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    places = [place for place, line in enumerate(lines) if line.startswith("Traceback")]
    return ["\n".join(lines[max(0, place - 1) : place + 40]) for place in places]
