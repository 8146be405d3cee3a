"""zombie: a worker that stood still past its lease writes late. starve: a blocked loop keeps its lease."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from uuid import UUID

from .invariants import OVERTAKEN
from .places import SQLITE
from .report import Report, progress
from .scene import LOOK_SECONDS, Scene, scene
from .work import STUBBORN, TRANSFER

LEASE_SECONDS = 1.0
STILL_LEASES = 3
# Its step ends while it stands still, and before whoever takes over can have ended the same one: so the
# late write is the first of its key, and only the fence can tell that it must not be.
ZOMBIE = {"steps": 2, "seconds": STILL_LEASES * LEASE_SECONDS, "lead": 0.02}
PATIENCE_SECONDS = 20.0
OVERTAKEN_SECONDS = 6 * LEASE_SECONDS
SLOTS = 64  # so many that a worker takes all runs that crashed once


async def zombie(
    rounds: int = 8, runs: int = 8, sabotage: str | None = None, seed: int = 0, *, store: str = SQLITE
) -> Report:
    """Stop an owner for three leases, let another take over, let the first go on: its writes are refused."""
    report, dice, began = Report(f"zombie {store}"), random.Random(seed), time.monotonic()
    overtaken = 0
    async with scene(2, sabotage, store, lease=LEASE_SECONDS, slots=SLOTS) as at:
        with progress() as tell:
            # A worker that is stopped in the middle of a commit holds the file itself: nobody can take
            # over before it goes on. Such a round shows nothing and is played again.
            for _ in range(2 * rounds):
                if overtaken == rounds:
                    break
                await at.start(TRANSFER, ZOMBIE, runs)
                overtaken += await _stand_still(at, dice, tell, f"round {overtaken + 1} of {rounds}")
                await _until_done(at, tell, PATIENCE_SECONDS)
        evidence = await at.evidence()
    refused = [entry for entry in evidence.entries if entry.kind == "refused"]
    commits = [entry for entry in refused if entry.step != "renew"]
    report.judge(evidence)
    report.expect(
        "all finished", evidence.finished == len(at.acked), f"{evidence.finished} of {len(at.acked)}"
    )
    report.expect(f"runs were taken over in each of {rounds} rounds", overtaken == rounds, f"in {overtaken}")
    report.expect("late commits were refused", bool(commits))
    report.figures |= {
        "rounds": rounds, "runs": len(at.acked), "takeovers": len(evidence.rows("lease_expired")),
        "refused_commits": len(commits), "refused_renewals": len(refused) - len(commits),
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _stand_still(at: Scene, dice: random.Random, tell: Callable[[str], None], name: str) -> bool:
    """Whether another worker took over what the stopped one held."""
    held = await _owner(at, dice)
    if held is None:
        return False
    owner, fences = held
    at.fleet.stop(owner)
    stopped_at = time.monotonic()
    taken = False
    try:
        while time.monotonic() - stopped_at < OVERTAKEN_SECONDS:
            now = await at.holders()
            taken = taken or any(now.get(run, (0, 0))[1] > fence for run, fence in fences.items())
            tell(f"{name}: a worker stands still, {'overtaken' if taken else 'not yet overtaken'}")
            if taken and time.monotonic() - stopped_at >= STILL_LEASES * LEASE_SECONDS:
                break
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        at.fleet.cont(owner)
    return taken


async def _owner(at: Scene, dice: random.Random) -> tuple[object, dict[UUID, int]] | None:
    """A worker that is at work, and what it holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        holders = await at.holders()
        at_work = [one for one in at.fleet.members if any(pid == one.pid for pid, _ in holders.values())]
        if at_work:
            owner = dice.choice(at_work)
            # Some way into a step: then it stands still with an effect made and not yet recorded.
            await asyncio.sleep(0.2 + dice.random() / 2)
            return owner, {run: fence for run, (pid, fence) in holders.items() if pid == owner.pid}
        await asyncio.sleep(LOOK_SECONDS)
    return None


async def starve(runs: int = 4, sabotage: str | None = None, *, store: str = SQLITE) -> Report:
    """A step blocks the event loop for three leases: nobody may take the run over."""
    report, began = Report(f"starve {store}"), time.monotonic()
    # One worker more than there are runs at a time: it has nothing to do but to take over.
    async with scene(3, sabotage, store, lease=LEASE_SECONDS, slots=1) as at:
        with progress() as tell:
            for _ in range(0, runs, 2):
                await at.start(STUBBORN, {"steps": 1, "seconds": STILL_LEASES * LEASE_SECONDS}, 2)
                await _until_done(at, tell, 8.0 if sabotage else PATIENCE_SECONDS)
        evidence = await at.evidence()
    report.judge(evidence, OVERTAKEN)
    if sabotage is None:
        report.expect(
            "all finished", evidence.finished == len(at.acked), f"{evidence.finished} of {len(at.acked)}"
        )
        report.expect("no effect twice", not evidence.duplicates, str(evidence.duplicates))
    report.figures |= {
        "runs": len(at.acked), "takeovers": len(evidence.rows("lease_expired")),
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _until_done(at: Scene, tell: Callable[[str], None], limit: float) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and (finished := await at.finished()) < len(at.acked):
        tell(f"{finished} of {len(at.acked)} runs finished")
        await asyncio.sleep(LOOK_SECONDS)
