"""redis-tail: a server that syncs its log every second is killed, and the end of the log is lost with it.

The losses are counted. Whatever was lost, the log that is left is a state that the store once had: no run is
stuck, only lost work is done again, and the sets agree with the rows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from holdfast.lifecycle import OPEN
from verify.checks.report import Report, progress
from verify.environment.environment import LOOK_SECONDS, STALL_SECONDS, Environment, environment
from verify.workloads.load import Load

from .aof import Growth, cut, log_file
from .losses import Losses, Window

if TYPE_CHECKING:
    from servers.redis import Redis

WORKERS = 3
STEPS = 5
LEASE_SECONDS = 6.0  # longer than the time that is lost: leases outlive it
RUNS_A_SECOND = 8
CALM_SECONDS = (2.0, 3.0)  # between two cuts
LOST_SECONDS = 2.0  # the longest time whose writes are cut off
# The server may hold writes back for so long while a sync is under way, and answers them nevertheless.
HELD_BACK_SECONDS = 2.0
EVERY_SECOND = {"appendfsync": "everysec"}
SHORT = "because aof-load-truncated is enabled"  # words of the server about a log that ends too early
SAID = "one or two seconds"  # of the doctor about this server


async def redis_tail(cuts: int = 10, seed: int = 0) -> Report:
    """Kill the server and cut the end of its log, `cuts` times, and start it again. The workers stay."""
    from servers.redis import running_redis

    report, dice, began = Report("redis-tail"), random.Random(seed), time.monotonic()
    lost: list[int] = []
    with ExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, running_redis(EVERY_SECOND, durable=True))
        url = f"unix://{server.socket}?prefix=tail"
        options = {"lease": LEASE_SECONDS, "slots": 4, "notes_claims": True}
        async with environment(WORKERS, None, url, **options) as env:
            losses = Losses(env.acked_at)
            seconds = cuts * (CALM_SECONDS[1] + 0.5)
            load = Load(env, round(RUNS_A_SECOND * seconds), STEPS, seconds, may_lose=True)
            await env.until_at_work()
            with progress() as tell:
                await hurt(server, cuts, dice, losses, lost, tell)
                await load.started()
                await until_all_ended(env, STALL_SECONDS, tell)
            await load.end()
            findings = await env.app.store.checkup()
            evidence = await env.evidence()
            said = (server.folder / "server.log").read_text("utf-8", "replace")
    losses.judge(report, evidence)
    told = [one.what for one in findings if one.what.startswith("durability second")]
    report.expect("doctor tells what may be lost", told and SAID in told[0], str(findings))
    still = [str(run) for run in evidence.runs.values() if run.status in OPEN]
    report.expect("all ended that were not lost", not still, "\n".join(still[:3] + env.stalled))
    report.expect(f"planned cuts: {cuts}", len(lost) == cuts, f"{len(lost)}")
    report.expect("the server found its log too short", SHORT in said)
    figures = losses.figures(evidence)
    report.expect("something was lost", figures["lost_starts"] or figures["lost_steps"])
    report.figures |= {
        **load.figures, "cuts": len(lost), "bytes_cut": sum(lost), **figures,
        "log_too_short": said.count(SHORT),
        "takeovers": len(evidence.rows("lease_expired")), "duplicates": evidence.duplicates,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    return report


async def hurt(
    server: Redis,
    cuts: int,
    dice: random.Random,
    losses: Losses,
    lost: list[int],
    tell: Callable[[str], None],
) -> None:
    """Kill the server again and again, each time with less of its log."""
    for number in range(cuts):
        growth = Growth(server.folder)
        watching = asyncio.create_task(growth.watch())
        await asyncio.sleep(dice.uniform(*CALM_SECONDS))
        killed_at = time.time()
        await asyncio.to_thread(server.kill)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        begin, size = growth.before(killed_at - dice.uniform(0.0, LOST_SECONDS))
        file = log_file(server.folder)
        whole = file.stat().st_size
        # Not at the size of a look, which is the end of a change: anywhere after it.
        following = growth.before(begin + 0.1)[1]
        left = cut(file, whole - dice.randint(size, max(size, following)))
        lost.append(whole - left)
        losses.windows.append(Window(begin - HELD_BACK_SECONDS, killed_at))
        await asyncio.to_thread(server.start)
        tell(f"cut {number + 1} of {cuts}: {whole - left} of {whole} bytes")


async def until_all_ended(env: Environment, patience: float, tell: Callable[[str], None]) -> None:
    """Wait until no run is open. A run that was lost is not there."""
    mark, marked_at = -1, time.monotonic()
    while True:
        env.fleet.supervise()
        counts = await env.counts()
        still = sum(counts.get(status, 0) for status in OPEN)
        if not still:
            return
        if still != mark:
            mark, marked_at = still, time.monotonic()
        elif time.monotonic() - marked_at > patience:
            env.stalled += await env.ask(env.standing_still)
            return
        tell(f"{still} runs are open")
        await asyncio.sleep(LOOK_SECONDS)
