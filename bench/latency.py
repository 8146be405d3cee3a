"""The time until user code gets a start, an event or the end of a sleep, in a process of its own: prints one
JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from datetime import UTC, datetime

import uvloop

import holdfast as hf

TYPE = "bench.latency.v1"
APART_SECONDS = 0.02
SLEEP_SECONDS = 0.5


class Reached:
    """The measured workflow, and its delays: each start or event carries the machine's clock."""

    def __init__(self, app: hf.App, what: str) -> None:
        self.seconds: list[float] = []
        self.parked = 0
        self.again = asyncio.Event()

        @app.workflow(TYPE)
        async def reached(ctx: hf.Context, params: dict[str, int]) -> None:
            if what == "start":
                return self.note(params["at"])
            if what == "sleep":
                await ctx.sleep_until(datetime.fromtimestamp(params["wake_us"] / 1e6, UTC))
                return self.note(params["at"])
            self.parked += 1
            event = await ctx.await_event(f"bench.{params['n']}")
            return self.note(event.payload["at"])

    def note(self, at: int) -> None:
        self.seconds.append((time.monotonic_ns() - at) / 1e9)
        self.again.set()


async def reach(app: hf.App, what: str, n: int) -> None:
    """Start a run, or wake a waiting one."""
    await asyncio.sleep(APART_SECONDS)
    if what == "start":
        await app.start(TYPE, {"at": time.monotonic_ns()})
    elif what == "sleep":
        at = time.monotonic_ns() + int(SLEEP_SECONDS * 1e9)
        await app.start(TYPE, {"at": at, "wake_us": int((time.time() + SLEEP_SECONDS) * 1e6)})
    else:
        await app.emit(f"bench.{n}", {"at": time.monotonic_ns()})


async def both(args: argparse.Namespace) -> dict[str, object]:
    """Measure in one process: the caller is the worker."""
    return await _listened(args, alone=True)


async def listener(args: argparse.Namespace) -> dict[str, object]:
    """Be the worker of two processes."""
    return await _listened(args, alone=False)


async def _listened(args: argparse.Namespace, *, alone: bool) -> dict[str, object]:
    app = hf.App(args.url)
    found = Reached(app, args.by)
    async with app.worker(slots=10) as worker, asyncio.timeout(120):
        if args.by == "emit":
            await app.start_many([(TYPE, {"n": n}) for n in range(args.runs)])
            while found.parked < args.runs or worker.busy:
                await asyncio.sleep(0.01)
        print("ready", flush=True)
        for n in range(args.runs if alone else 0):
            found.again.clear()
            await reach(app, args.by, n)
            await found.again.wait()
        while len(found.seconds) < args.runs:
            await asyncio.sleep(0.01)
    await app.close()
    seconds = sorted(found.seconds)
    return {
        "n": len(seconds),
        "ms_p50": round(seconds[len(seconds) // 2] * 1e3, 2),
        "ms_p99": round(seconds[int(len(seconds) * 0.99)] * 1e3, 2),
    }


async def sender(args: argparse.Namespace) -> dict[str, object]:
    """Be the caller of two processes."""
    app = hf.App(args.url)
    await app.store.open()  # once in a caller's process, so it is not measured
    for n in range(args.runs):
        await reach(app, args.by, n)
    await app.close()
    return {"sent": args.runs}


ALL = {each.__name__: each for each in (both, listener, sender)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", required=True)
    parser.add_argument("--by", required=True, choices=["start", "emit", "sleep"])
    parser.add_argument("--runs", type=int, default=200)
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(ALL[arguments.what](arguments))))
