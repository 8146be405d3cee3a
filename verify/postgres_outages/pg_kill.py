"""pg-kill: the whole server is killed under load and started again: no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass

from verify.checks.evidence import Evidence
from verify.checks.report import Check, Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, environment
from verify.environment.stores import chosen_version, database
from verify.sabotage import LATE_SYNC
from verify.workloads.load import Load

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 2.0
RUNS_A_SECOND = 8
CALM_SECONDS = (2.0, 3.0)  # between two kills
DOWN_SECONDS = (0.0, 1.5)  # on top of the server's own start
BACK_SECONDS = 5.0
# With these settings the server writes only when a buffer is full, or after ten seconds.
CARELESS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage, by the clock of the machine."""

    killed_at: float
    back_at: float


async def pg_kill(kills: int = 3, sabotage: str | None = None, seed: int = 0) -> Report:
    """Kill every process of the server, `kills` times; it starts again with the same data and workers."""
    from servers.postgres import Postgres, running_postgres

    report, dice, began = Report("pg-kill"), random.Random(seed), time.monotonic()
    outages: list[Outage] = []

    async def hurt(server: Postgres) -> None:
        for _ in range(kills):
            await asyncio.sleep(dice.uniform(*CALM_SECONDS))
            killed_at = time.time()
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(dice.uniform(*DOWN_SECONDS))
            await asyncio.to_thread(server.start)
            outages.append(Outage(killed_at, time.time()))
        await asyncio.sleep(CALM_SECONDS[0])

    settings = CARELESS if sabotage == LATE_SYNC else {}
    durable = running_postgres(chosen_version(), fsync=True, settings=settings)
    with ExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, durable)
        name = stack.enter_context(database(server))
        async with environment(WORKERS, None, server.url(name), lease=LEASE_SECONDS, slots=4) as env:
            seconds = kills * (CALM_SECONDS[1] + DOWN_SECONDS[1]) + CALM_SECONDS[0]
            load = Load(env, round(RUNS_A_SECOND * seconds), STEPS, seconds)
            hurting = asyncio.create_task(hurt(server))
            with progress() as tell:
                await env.until(
                    hurting.done,
                    load.total,
                    lambda done: tell(f"{done} of {load.total} runs finished, {len(outages)} kills"),
                    STALL_SECONDS if sabotage is None else 3 * BROKEN_SECONDS,  # in which it was down as well
                )
            await hurting
            await load.end()
            evidence = await env.evidence()
    report.judge(evidence)
    back = [_seconds_to_first_commit(evidence, outage) for outage in outages]
    late = tuple(f"{seconds:.1f} s" for seconds in back if seconds > BACK_SECONDS)
    report.checks.append(Check(f"E10 back later than {BACK_SECONDS:g} s", len(late), late, invariant=True))
    done = sum(1 for _ in evidence.succeeded())
    report.expect(f"planned kills fired: {kills}", len(outages) == kills, f"{len(outages)} fired")
    report.expect("all succeeded", done == load.total, "\n".join([f"{done} of {load.total}", *env.stalled]))
    report.expect("something was under way at each kill", all(_busy(evidence, one) for one in outages))
    report.figures |= {
        **load.figures, "kills": len(outages), "takeovers": len(evidence.rows("lease_expired")),
        "first_commit_after": " ".join(f"{seconds:.2f}" for seconds in back),
        "down": " ".join(f"{one.back_at - one.killed_at:.1f}" for one in outages),
        "asked_again_by_the_client": env.unanswered, "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def _seconds_to_first_commit(evidence: Evidence, outage: Outage) -> float:
    """Return the seconds to a worker's first commit. Times in the trail are of the server, on this
    machine.
    """
    after = [at for at in _committed(evidence) if at > outage.killed_at]
    return max(0.0, min(after, default=float("inf")) - outage.back_at)


def _busy(evidence: Evidence, outage: Outage) -> bool:
    return any(0 < outage.killed_at - at < 1.0 for at in _committed(evidence))


def _committed(evidence: Evidence) -> list[float]:
    return [row.at.timestamp() for row in evidence.rows("step_succeeded")]
