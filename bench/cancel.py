"""The time until a cancel reaches the step of a leased run, in a process of its own: prints one JSON line.

The worker notes when `CancelledError` comes into the step, and reads from the trail when the run was
cancelled: both by the wall clock of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from uuid import UUID

import uvloop

import holdfast as hf
from holdfast.lifecycle import Status

TYPE = "bench.cancel.v1"
STEP_SECONDS = 8.0
APART_SECONDS = 0.3


async def worker(args: argparse.Namespace) -> dict[str, object]:
    """Execute the runs, each with one long step."""
    app = hf.App(args.url)
    reached: dict[UUID, float] = {}

    async def long_step(run: UUID) -> None:
        try:
            await asyncio.sleep(STEP_SECONDS)
        finally:
            reached[run] = time.time()

    @app.workflow(TYPE)
    async def order(ctx: hf.Context) -> None:
        await ctx.step("long", long_step, ctx.run_id)

    async with app.worker(slots=100), asyncio.timeout(600):
        print("ready", flush=True)
        while len(reached) < args.runs:
            await asyncio.sleep(0.01)
    seconds = []
    for run, at in reached.items():
        cancelled = [entry for entry in await app.trail(run) if entry.type == "cancelled"]
        seconds.append(at - cancelled[0].at.timestamp() if cancelled else STEP_SECONDS)
    await app.close()
    seconds.sort()
    return {
        "n": len(seconds),
        "ms_p50": round(seconds[len(seconds) // 2] * 1e3, 2),
        "ms_p99": round(seconds[int(len(seconds) * 0.99)] * 1e3, 2),
        "ms_max": round(seconds[-1] * 1e3, 2),
    }


async def caller(args: argparse.Namespace) -> dict[str, object]:
    """Start the runs and cancel each while its step is executed."""
    app = hf.App(args.url)
    for _ in range(args.runs):
        run = await app.start(TYPE)
        while (found := await app.get(run.id)) is None or found.status is not Status.LEASED:
            await asyncio.sleep(0.005)
        await asyncio.sleep(random.uniform(0.5, 1.5) * APART_SECONDS)
        await app.cancel(run.id)
    await app.close()
    return {"cancelled": args.runs}


ALL = {each.__name__: each for each in (worker, caller)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", required=True)
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(ALL[arguments.what](arguments))))
