"""Server kills: a durable server is killed under load and started again: no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verify.checks.evidence import Evidence
from verify.checks.invariants import Invariant
from verify.checks.report import Check, Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, Environment
from verify.workloads.load import Load

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 2.0
RUNS_A_SECOND = 8
BACK_SECONDS = 5.0


class Server(Protocol):
    """A server that can be killed, and started again with the same data."""

    def kill(self) -> None:
        """End it at once, as a crash does."""

    def start(self) -> None:
        """Start it on the existing data."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One outage, by the clock of the machine."""

    killed_at: float
    back_at: float


@dataclass(frozen=True, slots=True)
class Kills:
    """The planned kills. `calm`: seconds between two; `down`: on top of the server's own start. `lose`:
    called after each kill."""

    number: int
    calm: tuple[float, float]
    down: tuple[float, float]
    lose: Callable[[], Any] = lambda: None

    @property
    def seconds(self) -> float:
        return self.number * (self.calm[1] + self.down[1]) + self.calm[0]


async def server_kills(
    report: Report, env: Environment, server: Server, kills: Kills, dice: random.Random, back: str,
    invariants: Mapping[str, Invariant] | None = None, *, broken: bool = False,
) -> Report:  # fmt: skip
    """Kill the server again and again; the workers stay. back: number of the check that it comes back."""
    began, outages = time.monotonic(), list[Outage]()

    async def hurt() -> None:
        await env.until_at_work()
        for _ in range(kills.number):
            await asyncio.sleep(dice.uniform(*kills.calm))
            killed_at = time.time()
            await asyncio.to_thread(server.kill)
            kills.lose()
            await asyncio.sleep(dice.uniform(*kills.down))
            await asyncio.to_thread(server.start)
            outages.append(Outage(killed_at, time.time()))
        await asyncio.sleep(kills.calm[0])

    load = Load(env, round(RUNS_A_SECOND * kills.seconds), STEPS, kills.seconds)
    hurting = asyncio.create_task(hurt())
    with progress() as tell:
        await env.until(
            hurting.done,
            load.total,
            lambda done: tell(f"{done} of {load.total} runs finished, {len(outages)} kills"),
            3 * BROKEN_SECONDS if broken else STALL_SECONDS,  # in which it was down as well
        )
    await hurting
    await load.end()
    evidence = await env.evidence()
    report.judge(evidence, invariants or {})
    after = [seconds_to_first_commit(evidence, outage) for outage in outages]
    late = tuple(f"{seconds:.1f} s" for seconds in after if seconds > BACK_SECONDS)
    report.checks.append(Check(f"{back} back later than {BACK_SECONDS:g} s", len(late), late, invariant=True))
    done = sum(1 for _ in evidence.succeeded())
    report.expect(
        f"planned kills fired: {kills.number}", len(outages) == kills.number, f"{len(outages)} fired"
    )
    report.expect("all succeeded", done == load.total, "\n".join([f"{done} of {load.total}", *env.stalled]))
    report.expect("something was under way at each kill", all(busy(evidence, one) for one in outages))
    report.figures |= {
        **load.figures, "kills": len(outages), "takeovers": len(evidence.rows("lease_expired")),
        "first_commit_after": " ".join(f"{seconds:.2f}" for seconds in after),
        "down": " ".join(f"{one.back_at - one.killed_at:.1f}" for one in outages),
        "asked_again_by_the_client": env.unanswered, "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


def seconds_to_first_commit(evidence: Evidence, outage: Outage) -> float:
    """Return the seconds to a worker's first commit. Times in the trail are of the server, on this
    machine.
    """
    after = [at for at in _committed(evidence) if at > outage.killed_at]
    return max(0.0, min(after, default=float("inf")) - outage.back_at)


def busy(evidence: Evidence, outage: Outage) -> bool:
    return any(0 < outage.killed_at - at < 1.0 for at in _committed(evidence))


def _committed(evidence: Evidence) -> list[float]:
    return [row.at.timestamp() for row in evidence.rows("step_succeeded")]
