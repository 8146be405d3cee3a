"""redis-failover: a replica that lacks the last writes takes over from its primary, under load.

Each time the replica is first cut off, while the primary goes on and answers. Then the primary dies; or it
lives, and the processes learn of the new primary one after the other. Lost work is done again, but no fence
is given twice, and no holder of a lost claim can write.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.lifecycle import OPEN
from verify.checks.report import Report, progress
from verify.environment.environment import BROKEN_SECONDS, STALL_SECONDS, environment
from verify.workloads.load import Load

from .losses import Losses, Window
from .redis_tail import until_all_ended
from .switch import Switch, switch_at, switch_at_port

if TYPE_CHECKING:
    from servers.redis import Redis

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 4.0
RUNS_A_SECOND = 8
CALM_SECONDS = (1.5, 2.5)  # before the replica is cut off
LAG_SECONDS = (0.2, 1.0)  # from there to the failover: what the primary writes meanwhile is lost
SPLIT_SECONDS = (0.1, 0.6)  # from one process that learns of the new primary to the next
# The replica may be late when it is cut off: on a busy machine it gets what was written a moment before.
BEHIND_SECONDS = 1.0
PAIRED = {"repl-diskless-sync-delay": "0"}  # a new replica gets everything at once
COPIED_SECONDS = 30.0  # for the new replica to have everything


@dataclass(slots=True)
class Pair:
    """A primary and its replica; `copying` carries the writes from one to the other."""

    primary: Redis
    replica: Redis
    front: Switch
    copying: Switch
    port: int  # of `copying`

    async def follow(self) -> None:
        """Let the replica copy the primary, and wait until it has everything."""
        self.copying.point(self.primary.port)
        await asyncio.to_thread(self._follow)

    def _follow(self) -> None:
        deadline = time.monotonic() + COPIED_SECONDS
        with self.replica.client() as client:
            client.replicaof("127.0.0.1", self.port)
            while client.info("replication").get("master_link_status") != "up":
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the replica does not copy:\n{self.replica.log()}")
                time.sleep(0.05)

    def promote(self) -> None:
        """Make the replica a primary of its own. The old primary does not learn of it."""
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")

    async def renew(self) -> None:
        """Kill the old primary, and start it again as the replica of the new one."""
        await asyncio.to_thread(self.primary.kill)
        self.primary, self.replica = self.replica, self.primary
        await asyncio.to_thread(self.replica.start)
        await self.follow()


async def redis_failover(failovers: int = 6, sabotage: str | None = None, seed: int = 0) -> Report:
    """Let the replica take over, `failovers` times: every second time the old primary lives on."""
    from servers.redis import running_redis

    report, dice, began = Report("redis-failover"), random.Random(seed), time.monotonic()
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True))
        )
        servers = [
            await asyncio.to_thread(stack.enter_context, running_redis(PAIRED, listens=("port",)))
            for _ in range(2)
        ]
        front = await stack.enter_async_context(switch_at(folder / "front.sock", servers[0].socket))
        copying, port = await stack.enter_async_context(switch_at_port(servers[0].port))
        pair = Pair(servers[0], servers[1], front, copying, port)
        await pair.follow()
        url = f"unix://{folder / 'front.sock'}?prefix=failover&durability=fsync"
        options = {"lease": LEASE_SECONDS, "slots": 4, "notes_claims": True}
        async with environment(WORKERS, sabotage, url, **options) as env:
            losses = Losses(env.acked_at)
            seconds = failovers * (CALM_SECONDS[1] + LAG_SECONDS[1] + 1.5)
            load = Load(env, round(RUNS_A_SECOND * seconds), STEPS, seconds, may_lose=True)
            await env.until_at_work()
            with progress() as tell:
                for number in range(failovers):
                    await _fail_over(pair, dice, losses, splits=bool(number % 2))
                    tell(f"failover {number + 1} of {failovers}")
                await load.started()
                await until_all_ended(env, STALL_SECONDS if sabotage is None else 3 * BROKEN_SECONDS, tell)
            await load.end()
            evidence = await env.evidence()
    losses.judge(report, evidence)
    still = [str(run) for run in evidence.runs.values() if run.status in OPEN]
    report.expect("all ended that were not lost", not still, "\n".join(still[:3] + env.stalled))
    figures = losses.figures(evidence)
    report.expect(f"planned failovers: {failovers}", len(losses.windows) == failovers)
    report.expect("something was lost", figures["lost_starts"] or figures["lost_steps"])
    report.expect("late writes were refused", figures["refused_writes"])
    report.figures |= {
        **load.figures, "failovers": len(losses.windows), **figures,
        "takeovers": len(evidence.rows("lease_expired")), "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def _fail_over(pair: Pair, dice: random.Random, losses: Losses, *, splits: bool) -> None:
    await asyncio.sleep(dice.uniform(*CALM_SECONDS))
    cut_at = time.time()
    pair.copying.point(None)
    await asyncio.sleep(dice.uniform(*LAG_SECONDS))
    if not splits:
        await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.promote)
    pair.front.point(pair.replica.socket, at_once=not splits)
    if splits:
        await _learn(pair.front, dice)
    losses.windows.append(Window(cut_at - BEHIND_SECONDS, time.time()))
    await pair.renew()


async def _learn(front: Switch, dice: random.Random) -> None:
    """Let all processes learn of the new primary, one after the other."""
    processes = sorted(front.processes)
    dice.shuffle(processes)
    for process in processes:
        await asyncio.sleep(dice.uniform(*SPLIT_SECONDS))
        front.move(process)
