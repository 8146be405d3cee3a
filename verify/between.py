"""between: a worker stands still between two steps, another does the next one, the first goes on.

It must not begin a step that is recorded: its clock tells it that its lease may have ended, and it asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import UUID

from holdfast.lifecycle import FINAL
from holdfast.records import ANY

from .evidence import Evidence
from .places import SQLITE
from .report import Report, progress
from .scene import LOOK_SECONDS, Scene, scene
from .work import TRANSFER

LEASE_SECONDS = 1.0
# The body takes some time between two steps: there it is stopped.
ORDER = {"steps": 3, "seconds": 0.01, "lead": 0.0, "pause": 0.3}
TAKEN_SECONDS = 6.0  # for another worker to end what the stopped one held
AFTER_SECONDS = 1.0  # for the first to begin what it must not


def begun_again(ev: Evidence) -> Iterator[str]:
    """E20: a worker that had lost the run began a step after another one had recorded it."""
    effects = ev.of("effect")
    for run, step in ev.recorded():
        for entry in effects[str(run.id), step.key]:
            if entry.fence < step.fence and step.finished_at is not None and entry.at > step.finished_at:
                yield f"run {run.id} {step.key}: recorded under fence {step.fence}, begun under {entry.fence}"


BEGUN_AGAIN = {"E20 recorded step begun by who stood still": begun_again}


async def between(
    rounds: int = 50, runs: int = 3, sabotage: str | None = None, *, store: str = SQLITE
) -> Report:
    """SIGSTOP a worker between two steps, so often, until another one has ended its runs; then SIGCONT."""
    report, began, overtaken = Report(f"between {store}"), time.monotonic(), 0
    async with scene(2, sabotage, store, lease=LEASE_SECONDS, slots=8) as at:
        with progress() as tell:
            # One that is stopped in the middle of a commit holds the file: such a round is played again.
            for _ in range(2 * rounds):
                if overtaken == rounds:
                    break
                overtaken += await _round(at, runs, tell, f"round {overtaken + 1} of {rounds}")
        evidence = await at.evidence()
    report.judge(evidence, BEGUN_AGAIN)
    report.expect(
        "all finished", evidence.finished == len(at.acked), f"{evidence.finished} of {len(at.acked)}"
    )
    report.expect(
        f"another worker ended the runs in each of {rounds} rounds", overtaken == rounds, f"in {overtaken}"
    )
    report.figures |= {
        "stops": rounds, "runs": len(at.acked), "takeovers": len(evidence.rows("lease_expired")),
        "recorded_begun_again": len(list(begun_again(evidence))),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _round(at: Scene, count: int, tell: Callable[[str], None], name: str) -> bool:
    """Whether another worker ended the runs that the stopped one held."""
    runs = await at.start(TRANSFER, ORDER, count)
    owner, held = await _between(at, runs)
    if owner is None:
        return False
    at.fleet.stop(owner)
    try:
        ended = await _ended(at, held, TAKEN_SECONDS)
        tell(f"{name}: {'another one has ended its runs' if ended else 'nobody could take over'}")
    finally:
        at.fleet.cont(owner)
    await asyncio.sleep(AFTER_SECONDS)
    return await _ended(at, runs, TAKEN_SECONDS) and ended


async def _between(at: Scene, runs: list[UUID]) -> tuple[object | None, list[UUID]]:
    """A worker whose runs are between two steps: the first is recorded, the next has not begun."""
    deadline, wanted = time.monotonic() + TAKEN_SECONDS, {str(run): run for run in runs}
    while time.monotonic() < deadline:
        seen = [entry for entry in at.entries() if entry.kind == "seen" and entry.run in wanted]
        if seen:
            pid = seen[-1].pid
            owner = next((one for one in at.fleet.members if one.pid == pid), None)
            return owner, [wanted[run] for run in {entry.run for entry in seen if entry.pid == pid}]
        await asyncio.sleep(LOOK_SECONDS / 2)
    return None, []


async def _ended(at: Scene, runs: list[UUID], limit_seconds: float) -> bool:
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        found = [await at.app.store.get(run, ANY) for run in runs]
        if all(run is not None and run.status in FINAL for run in found):
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False
