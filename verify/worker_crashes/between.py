"""between: a worker is stopped between two steps until another worker has ended its runs, and then goes on.

The first worker must not begin a recorded step: its clock says that the lease may be over, so it asks first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import UUID

from holdfast.lifecycle import FINAL
from holdfast.records import ANY
from verify.checks.evidence import Evidence
from verify.checks.report import Report, progress
from verify.environment.environment import LOOK_SECONDS, Environment, environment
from verify.environment.stores import SQLITE
from verify.workloads.workflows import TRANSFER

LEASE_SECONDS = 1.0
# The body takes some time between two steps: the worker is stopped there.
ORDER = {"steps": 3, "seconds": 0.01, "lead": 0.0, "pause": 0.3}
TAKEN_SECONDS = 6.0  # for another worker to end what the stopped one held
AFTER_SECONDS = 1.0  # for the first worker to begin a step, which it must not


def begun_again(ev: Evidence) -> Iterator[str]:
    """E20: a worker that had lost the run began a step after another one had recorded it."""
    effects = ev.of("effect")
    for run, step in ev.recorded():
        for entry in effects[str(run.id), step.key]:
            if entry.fence < step.fence and step.finished_at is not None and entry.at > step.finished_at:
                yield f"run {run.id} {step.key}: recorded under fence {step.fence}, begun under {entry.fence}"


BEGUN_AGAIN = {"E20 recorded step begun by a stopped worker": begun_again}


async def between(
    rounds: int = 50, runs: int = 3, sabotage: str | None = None, *, store: str = SQLITE
) -> Report:
    """In each round, stop a worker between two steps until another one has ended its runs; then continue
    it.
    """
    report, began, overtaken = Report(f"between {store}"), time.monotonic(), 0
    async with environment(2, sabotage, store, lease=LEASE_SECONDS, slots=8) as env:
        with progress() as tell:
            # A worker that is stopped in the middle of a commit locks the file: such a round is repeated.
            for _ in range(2 * rounds):
                if overtaken == rounds:
                    break
                overtaken += await _round(env, runs, tell, f"round {overtaken + 1} of {rounds}")
        evidence = await env.evidence()
    report.judge(evidence, BEGUN_AGAIN)
    report.expect(
        "all finished", evidence.finished == len(env.acked), f"{evidence.finished} of {len(env.acked)}"
    )
    report.expect(
        f"another worker ended the runs in each of {rounds} rounds", overtaken == rounds, f"in {overtaken}"
    )
    report.figures |= {
        "stops": rounds, "runs": len(env.acked), "takeovers": len(evidence.rows("lease_expired")),
        "recorded_begun_again": len(list(begun_again(evidence))),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _round(env: Environment, count: int, tell: Callable[[str], None], name: str) -> bool:
    """Return True when another worker ended the runs of the stopped one."""
    runs = await env.start(TRANSFER, ORDER, count)
    owner, held = await _between(env, runs)
    if owner is None:
        return False
    env.fleet.stop(owner)
    try:
        ended = await _ended(env, held, TAKEN_SECONDS)
        tell(f"{name}: {'another one has ended its runs' if ended else 'nobody could take over'}")
    finally:
        env.fleet.cont(owner)
    await asyncio.sleep(AFTER_SECONDS)
    return await _ended(env, runs, TAKEN_SECONDS) and ended


async def _between(env: Environment, runs: list[UUID]) -> tuple[object | None, list[UUID]]:
    """Return a worker whose runs are between two steps: the first is recorded, the next has not begun."""
    deadline, wanted = time.monotonic() + TAKEN_SECONDS, {str(run): run for run in runs}
    while time.monotonic() < deadline:
        seen = [entry for entry in env.entries() if entry.kind == "seen" and entry.run in wanted]
        if seen:
            pid = seen[-1].pid
            owner = next((one for one in env.fleet.members if one.pid == pid), None)
            return owner, [wanted[run] for run in {entry.run for entry in seen if entry.pid == pid}]
        await asyncio.sleep(LOOK_SECONDS / 2)
    return None, []


async def _ended(env: Environment, runs: list[UUID], limit_seconds: float) -> bool:
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        found = [await env.app.store.get(run, ANY) for run in runs]
        if all(run is not None and run.status in FINAL for run in found):
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False
