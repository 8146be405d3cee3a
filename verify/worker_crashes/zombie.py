"""zombie: a worker that was stopped past its lease writes late. starve: a blocked event loop keeps its
lease.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from uuid import UUID

from verify.checks.invariants import OVERTAKEN
from verify.checks.report import Report, progress
from verify.environment.environment import LOOK_SECONDS, Environment, environment
from verify.environment.stores import SQLITE
from verify.workloads.workflows import STUBBORN, TRANSFER

LEASE_SECONDS = 1.0
STILL_LEASES = 3
# The step ends while its worker is stopped, and before the next worker can have ended the same step. So the
# late write is the first of its key, and only the fence shows that it must be refused.
ZOMBIE = {"steps": 2, "seconds": STILL_LEASES * LEASE_SECONDS, "lead": 0.02}
PATIENCE_SECONDS = 20.0
OVERTAKEN_SECONDS = 6 * LEASE_SECONDS
SLOTS = 64  # enough for a worker to take all runs that crashed once


async def zombie(
    rounds: int = 8, runs: int = 8, sabotage: str | None = None, seed: int = 0, *, store: str = SQLITE
) -> Report:
    """Stop a worker for three leases; another one takes over; continue the first: its writes are refused."""
    report, dice, began = Report(f"zombie {store}"), random.Random(seed), time.monotonic()
    overtaken = 0
    async with environment(2, sabotage, store, lease=LEASE_SECONDS, slots=SLOTS) as env:
        with progress() as tell:
            # A worker that is stopped in the middle of a commit locks the file: no other worker can take
            # over before it goes on. Such a round shows nothing and is repeated.
            for _ in range(2 * rounds):
                if overtaken == rounds:
                    break
                await env.start(TRANSFER, ZOMBIE, runs)
                overtaken += await _stand_still(env, dice, tell, f"round {overtaken + 1} of {rounds}")
                await _until_done(env, tell, PATIENCE_SECONDS)
        evidence = await env.evidence()
    refused = [entry for entry in evidence.entries if entry.kind == "refused"]
    commits = [entry for entry in refused if entry.step != "renew"]
    report.judge(evidence)
    report.expect(
        "all finished", evidence.finished == len(env.acked), f"{evidence.finished} of {len(env.acked)}"
    )
    report.expect(f"runs were taken over in each of {rounds} rounds", overtaken == rounds, f"in {overtaken}")
    report.expect("late commits were refused", bool(commits))
    report.figures |= {
        "rounds": rounds, "runs": len(env.acked), "takeovers": len(evidence.rows("lease_expired")),
        "refused_commits": len(commits), "refused_renewals": len(refused) - len(commits),
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _stand_still(env: Environment, dice: random.Random, tell: Callable[[str], None], name: str) -> bool:
    """Return True when another worker took over runs of the stopped one."""
    held = await _owner(env, dice)
    if held is None:
        return False
    owner, fences = held
    env.fleet.stop(owner)
    stopped_at = time.monotonic()
    taken = False
    try:
        while time.monotonic() - stopped_at < OVERTAKEN_SECONDS:
            now = await env.holders()
            taken = taken or any(now.get(run, (0, 0))[1] > fence for run, fence in fences.items())
            tell(f"{name}: a worker stands still, {'overtaken' if taken else 'not yet overtaken'}")
            if taken and time.monotonic() - stopped_at >= STILL_LEASES * LEASE_SECONDS:
                break
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        env.fleet.cont(owner)
    return taken


async def _owner(env: Environment, dice: random.Random) -> tuple[object, dict[UUID, int]] | None:
    """Return a worker that holds runs, and the fences of these runs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        holders = await env.holders()
        at_work = [one for one in env.fleet.members if any(pid == one.pid for pid, _ in holders.values())]
        if at_work:
            owner = dice.choice(at_work)
            # Wait until the worker is inside a step: then it is stopped with an effect that is not recorded.
            await asyncio.sleep(0.2 + dice.random() / 2)
            return owner, {run: fence for run, (pid, fence) in holders.items() if pid == owner.pid}
        await asyncio.sleep(LOOK_SECONDS)
    return None


async def starve(runs: int = 4, sabotage: str | None = None, *, store: str = SQLITE) -> Report:
    """Run steps that block the event loop for three leases: no other worker may take the runs over."""
    report, began = Report(f"starve {store}"), time.monotonic()
    # There is one worker more than runs at a time: it has nothing to do but to take over.
    async with environment(3, sabotage, store, lease=LEASE_SECONDS, slots=1) as env:
        with progress() as tell:
            for _ in range(0, runs, 2):
                await env.start(STUBBORN, {"steps": 1, "seconds": STILL_LEASES * LEASE_SECONDS}, 2)
                await _until_done(env, tell, 8.0 if sabotage else PATIENCE_SECONDS)
        evidence = await env.evidence()
    report.judge(evidence, OVERTAKEN)
    if sabotage is None:
        report.expect(
            "all finished", evidence.finished == len(env.acked), f"{evidence.finished} of {len(env.acked)}"
        )
        report.expect("no effect twice", not evidence.duplicates, str(evidence.duplicates))
    report.figures |= {
        "runs": len(env.acked), "takeovers": len(evidence.rows("lease_expired")),
        "duplicates": evidence.duplicates, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _until_done(env: Environment, tell: Callable[[str], None], limit: float) -> None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline and (finished := await env.finished()) < len(env.acked):
        tell(f"{finished} of {len(env.acked)} runs finished")
        await asyncio.sleep(LOOK_SECONDS)
