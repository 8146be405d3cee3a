"""crashed: runs whose worker crashes, by their own fault, by that of another run, or from outside.

Three parts. crowd: many runs, one of which kills its worker. twice: a worker is killed from outside, twice.
behind: a long step that has crashed three times, and another run that waits for it.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from uuid import UUID

from holdfast.backoff import crash_delay
from holdfast.lifecycle import Status
from holdfast.records import ANY, Run
from verify.checks.report import Report, progress
from verify.environment.environment import LOOK_SECONDS, Environment, environment
from verify.environment.stores import SQLITE
from verify.workloads.workflows import POISON, TRANSFER

WAIT_SECONDS = 60.0


async def crowd(
    good: int = 299, lease: float = 2.0, seconds: float = 4.0, workers: int = 2, *, store: str = SQLITE
) -> Report:
    """One of many runs kills its worker within a lease time: only that run fails."""
    report, began = Report(f"crowd {store}"), time.monotonic()
    async with environment(workers, None, store, lease=lease, slots=good + 1) as env:
        order = {"steps": 1, "seconds": seconds}
        await env.start(TRANSFER, order, good // 2)
        (bad,) = await env.start(POISON, lease / 4)
        await env.start(TRANSFER, order, good - good // 2)
        with progress() as tell:
            await env.until(lambda: True, good + 1, lambda done: tell(f"{done} of {good + 1} runs ended"))
        evidence = await env.evidence()
        ended = round(time.monotonic() - began, 1)
    failed = [run for run in evidence.runs.values() if run.status is not Status.SUCCEEDED]
    report.expect("nothing stalled", not env.stalled, "\n          ".join(env.stalled))
    report.expect("only the poison failed", [run.id for run in failed] == [bad], f"{len(failed)} runs failed")
    report.expect("at four crashes", evidence.runs[bad].crashes == 4, str(evidence.runs[bad].crashes))
    report.figures |= {
        "runs": good + 1, "failed": len(failed), "workers_lost": env.fleet.replaced,
        "takeovers": len(evidence.rows("lease_expired")), "seconds": ended,
    }  # fmt: skip
    return report


async def twice(runs: int = 40, seconds: float = 6.0, lease: float = 30.0, *, store: str = SQLITE) -> Report:
    """Runs whose worker is killed twice from outside end within twice their time of becoming claimable."""
    report, limit = Report(f"twice {store}"), 2 * seconds
    async with environment(1, None, store, lease=lease, slots=runs) as env:
        ids = await env.start(TRANSFER, {"steps": 1, "seconds": seconds}, runs)
        for crashes in (0, 1):
            began = await _leased(env, ids, crashes, lease + WAIT_SECONDS)
            report.expect(f"all were at work after {crashes} kills", began)
            env.fleet.kill(env.fleet.members[0])
        with progress() as tell:
            await env.until(
                lambda: True, runs, lambda done: tell(f"{done} of {runs} ended"), lease + WAIT_SECONDS
            )
        took = [await _after_claimable(env, run) for run in ids]
    longest = round(max(took), 1)
    report.expect(f"each ended within {limit:g} s of becoming claimable", longest <= limit, f"{longest} s")
    report.figures |= {"runs": runs, "of_seconds": seconds, "lease": lease, "longest": longest}
    return report


async def behind(lease: float = 30.0, seconds: float = 1000.0, *, store: str = SQLITE) -> Report:
    """A run that has executed for a whole lease time is no longer limited: it lets the next one begin."""
    report = Report(f"behind {store}")
    async with environment(1, None, store, lease=lease, slots=8) as env:
        ids = await env.start(TRANSFER, {"steps": 1, "seconds": seconds}, 2)
        for crashes in (0, 1, 2):
            await _leased(env, ids, crashes, lease + WAIT_SECONDS)
            env.fleet.kill(env.fleet.members[0])
        report.expect("both begin again", await _leased(env, ids, 3, 2 * lease + WAIT_SECONDS, forgiven=True))
        began = sorted([await _last(env, run, "leased") for run in ids])
    waited = round((began[1] - began[0]).total_seconds(), 1)
    limit = lease + max(2.0, lease / 10)
    report.expect(f"the second waits for {limit:g} s at most", waited <= limit, f"{waited} s")
    report.expect("and for a lease time", waited >= lease, f"{waited} s")
    report.figures |= {"step_seconds": seconds, "lease": lease, "waited": waited}
    return report


async def crashed(store: str = SQLITE, *, short: bool = False) -> list[Report]:
    """Run all three parts; short: with leases of a second or two."""
    if short:
        return [
            await crowd(11, 1.0, 1.5, 1, store=store), await twice(20, 3.0, 2.0, store=store),
            await behind(1.0, 60.0, store=store),
        ]  # fmt: skip
    return [await crowd(store=store), await twice(store=store), await behind(store=store)]


async def _found(env: Environment, run: UUID) -> Run:
    found = await env.app.store.get(run, ANY)
    assert found is not None
    return found


async def _leased(
    env: Environment, runs: list[UUID], crashes: int, limit_seconds: float, *, forgiven: bool = False
) -> bool:
    """Return True when all runs are leased at the same time, after this number of crashes."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        env.fleet.supervise()
        found = [await _found(env, run) for run in runs]
        counts = {crashes, 0} if forgiven else {crashes}
        if all(run.status is Status.LEASED and run.crashes in counts for run in found):
            await asyncio.sleep(2 * LOOK_SECONDS)  # so that their steps have begun
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def _last(env: Environment, run: UUID, kind: str) -> datetime:
    return max(row.at for row in await env.app.store.trail(run, ANY) if row.type == kind)


async def _after_claimable(env: Environment, run: UUID) -> float:
    found = await _found(env, run)
    expired = [row for row in await env.app.store.trail(run, ANY) if row.type == "lease_expired"]
    claimable = expired[-1].at + timedelta(seconds=crash_delay(len(expired)))
    return (found.finished_at - claimable).total_seconds() if found.finished_at else float("inf")
