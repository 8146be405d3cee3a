"""kill9: workers are killed at random while they work. poison: a run that kills its worker each time."""

from __future__ import annotations

import asyncio
import random
import time
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.records import MAX_CRASHES, Run
from verify.checks.evidence import Evidence
from verify.checks.report import Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, Environment, environment
from verify.environment.stores import SQLITE
from verify.workloads.load import STEP_SECONDS, Load, spread
from verify.workloads.workflows import POISON, TRANSFER

LEASE_SECONDS = 1.5
SLOTS = 4
SHARE_FINISHED = 0.95
SHARE_UNLUCKY = 0.01  # share of runs whose workers are killed at every attempt, and of their parents
ENOUGH = 1.5  # times the planned kills: the last runs may end in peace


async def kill9(
    runs: int = 200,
    steps: int = 5,
    workers: int = 3,
    every: float = 0.3,
    kills: int = 50,
    seed: int = 0,
    *,
    store: str = SQLITE,
    sabotage: str | None = None,
) -> Report:
    """Kill a random worker again and again while runs are open, at least `kills` times.

    Beside the simple runs there are plans, whose gates are decided meanwhile, and parents with children.
    """
    report, dice, killed = Report(f"kill9 {store}"), random.Random(seed), 0
    began = time.monotonic()
    async with environment(workers, sabotage, store, lease=LEASE_SECONDS, slots=SLOTS) as env:
        # Starts are spread over the time of the planned kills, or most work would be done before the kills.
        load = Load(env, runs, steps, every * kills)
        total = load.total
        next_at = time.monotonic() + every
        with progress() as tell:

            def each(finished: int) -> None:
                nonlocal killed, next_at
                if time.monotonic() >= next_at and killed < ENOUGH * kills:
                    next_at += every
                    env.fleet.kill(dice.choice(env.fleet.members))
                    killed += 1
                tell(f"{finished} of {total} runs finished, {killed} kills")

            patience = STALL_SECONDS if sabotage is None else BROKEN_SECONDS
            await env.until(lambda: killed >= kills, total, each, patience)
        await load.end()
        evidence = await env.evidence()
    report.judge(evidence)
    _progress(report, evidence, env, total)
    report.expect(f"planned kills fired: {kills}", killed >= kills, f"{killed} fired")
    wrong = [f"{run.id}: {run.status}, {run.error}" for run in evidence.runs.values() if _went_wrong(run)]
    few = evidence.finished - _succeeded(evidence) <= SHARE_UNLUCKY * total
    report.expect("all succeeded that were not killed at each try", few and not wrong, "; ".join(wrong[:3]))
    bound = killed * SLOTS
    report.expect(
        f"duplicate effects at most {bound}", evidence.duplicates <= bound, str(evidence.duplicates)
    )
    unlucky = evidence.finished - _succeeded(evidence)
    report.figures |= {**load.figures, "kills": killed, "unlucky": unlucky, **_figures(evidence, began)}
    return report


def _went_wrong(run: Run) -> bool:
    """Return True when a run failed for a wrong reason. A run with MAX_CRASHES crashes fails, as it
    should.
    """
    if run.status is Status.SUCCEEDED:
        return False
    kind = run.error.kind if run.error is not None else ""
    unlucky = kind == "lease_expired" and run.crashes == MAX_CRASHES
    return not (unlucky or kind == "child_failed")


def _succeeded(evidence: Evidence) -> int:
    return sum(1 for _ in evidence.succeeded())


def _progress(report: Report, evidence: Evidence, env: Environment, runs: int) -> None:
    takeovers = len(evidence.rows("lease_expired"))
    share = evidence.finished / runs
    report.expect("nothing stalled", not env.stalled, "\n          ".join(env.stalled))
    report.expect("at least 95 % finished", share >= SHARE_FINISHED, f"{evidence.finished} of {runs}")
    report.expect("takeovers were seen", takeovers > 0)


def _figures(evidence: Evidence, began: float) -> dict[str, object]:
    return {
        "takeovers": len(evidence.rows("lease_expired")),
        "effects": sum(entry.kind == "effect" for entry in evidence.entries),
        "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }


async def poison(good: int = 100, workers: int = 3, seed: int = 0, *, store: str = SQLITE) -> Report:
    """Start a run whose step ends the process, among good runs: it alone fails, at the cap of crashes."""
    report, began = Report(f"poison {store}"), time.monotonic()
    async with environment(workers, None, store, lease=1.0, slots=8) as env:
        # Some good runs are started before the poison, the others later.
        before = random.Random(seed).randrange(8)
        await env.start(TRANSFER, {"steps": 5, "seconds": STEP_SECONDS}, before)
        (bad,) = await env.start(POISON, 0.0)
        # While the poison lives there must be other runs that it could harm.
        starts = asyncio.create_task(spread(env, good - before, 5, 10.0))
        with progress() as tell:
            await env.until(
                starts.done, good + 1,
                lambda done: tell(f"{done} of {good + 1} runs finished, {env.fleet.replaced} workers lost"),
            )  # fmt: skip
        await starts
        evidence = await env.evidence()
    report.judge(evidence)
    _progress(report, evidence, env, good + 1)
    report.expect(
        "every good run succeeded", _succeeded(evidence) == good, f"{_succeeded(evidence)} of {good}"
    )
    _at_the_cap(report, evidence, bad)
    report.figures |= {"good": good, "workers_lost": env.fleet.replaced, **_figures(evidence, began)}
    return report


def _at_the_cap(report: Report, evidence: Evidence, bad: UUID) -> None:
    run = evidence.runs[bad]
    kind = run.error.kind if run.error else None
    deaths = len(evidence.of("effect")[str(bad), "die"])
    failed = run.status is Status.FAILED and kind == "lease_expired"
    report.expect("the poison failed, of kind lease_expired", failed, f"{run.status}, {kind}")
    report.expect(
        f"at exactly {MAX_CRASHES} crashes",
        deaths == MAX_CRASHES == run.crashes,
        f"{deaths} deaths, {run.crashes} crashes",
    )
