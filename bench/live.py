"""Live trails and long polls: one process watches the runs of another one. Prints one JSON line.

`watcher`: first it watches runs that wait for nothing, then each run that the other process starts: with one
trail to its end and one long poll. The delay of an end is by the wall clock of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections import Counter
from typing import Any
from uuid import UUID

import uvloop

import holdfast as hf
from holdfast.contract import Store
from holdfast.engine.live.live import Live
from holdfast.engine.live.news import Ended
from holdfast.records import ANY, NewRun, TrailEntry
from holdfast.stores import make_store
from holdfast.world import RealWorld

TYPE, QUIET = "bench.live.v1", "bench.quiet.v1"
SETTLE_SECONDS = 5.0
EXPECTED = ["created", "leased", *["step_succeeded"] * 3, "succeeded"]
STEP_SECONDS = 1.6  # of each of three steps: a run lasts about five seconds


class Counted:
    """A store that counts its reads."""

    def __init__(self, store: Store) -> None:
        self._store, self.reads = store, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name in {"follow", "follow_all", "get"}:
            self.reads[name] += 1
        return verb


class Watcher:
    """The subscribers of one process."""

    def __init__(self, url: str) -> None:
        self.store: Any = Counted(make_store(url))
        self.world = RealWorld()
        self.live = Live(self.store, self.world)
        self.tasks: set[asyncio.Task[None]] = set()
        self.delays: list[float] = []
        self.rows = self.wrong = 0
        self.over = False

    async def trail(self, run: UUID) -> None:
        """Follow a run to its end, and check that no row is missing."""
        types: list[str] = []
        at = 0.0
        async with self.live.trail(run, ANY) as trail:
            async for news in trail:
                if isinstance(news, Ended):
                    self.delays.append(time.time() - at)
                    self.wrong += [*types[:2], *types[-4:]] != EXPECTED
                elif isinstance(news, TrailEntry):
                    self.rows, at = self.rows + 1, news.at.timestamp()
                    types.append(news.type)

    async def end(self, run: UUID) -> None:
        """Wait for the end of a run as clients of long polls do, thirty seconds at a time."""
        while await self.live.ended(run, ANY, 30.0) is None and not self.over:
            pass

    def watch(self, run: UUID) -> None:
        for work in (self.trail(run), self.end(run)):
            self.tasks.add(task := asyncio.get_running_loop().create_task(work))
            task.add_done_callback(self.tasks.discard)

    async def started(self) -> None:
        """Watch every run that is started from now on."""
        async with self.live.tenant_trail(ANY, None, ["created"]) as trail:
            async for news in trail:
                if isinstance(news, TrailEntry):
                    self.watch(news.run)

    async def measured(self, seconds: float) -> dict[str, Any]:
        before, cpu, at = self.store.reads.copy(), time.process_time(), time.monotonic()
        self.rows, self.delays = 0, []
        await asyncio.sleep(seconds)
        took = time.monotonic() - at
        share = (time.process_time() - cpu) / took
        reads = {name: round((count - before[name]) / took, 2) for name, count in self.store.reads.items()}
        delays = sorted(self.delays)
        return {
            "subscribers": self.live.subscribers,
            "reads_per_s": reads,
            "share": round(share, 4),
            "rows_per_s": round(self.rows / took, 1),
            "ends_per_s": round(len(delays) / took, 1),
            "end_ms_p50": round(delays[len(delays) // 2] * 1e3, 1) if delays else None,
            "end_ms_p99": round(delays[int(len(delays) * 0.99)] * 1e3, 1) if delays else None,
            "wrong": self.wrong,
            "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }


async def watcher(args: argparse.Namespace) -> dict[str, object]:
    """Watch runs that do not move, then runs that do."""
    it = Watcher(args.url)
    await it.store.open()
    bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    quiet = [NewRun(id=it.world.uuid7(), type=QUIET) for _ in range(args.runs)]
    await it.store.start(quiet)
    for run in quiet:
        it.watch(run.id)
    await asyncio.sleep(SETTLE_SECONDS)
    while it.live.subscribers < 2 * args.runs:
        await asyncio.sleep(0.1)
    idle = await it.measured(args.seconds)
    for task in tuple(it.tasks):
        task.cancel()
    it.tasks.add(asyncio.get_running_loop().create_task(it.started()))
    await asyncio.sleep(1)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    busy = await it.measured(args.seconds)
    it.over = True
    await it.live.close()
    await asyncio.gather(*it.tasks, return_exceptions=True)
    await it.store.close()
    return {"bare_mb": round(bare, 1), "idle": idle, "busy": busy}


async def load(args: argparse.Namespace) -> dict[str, object]:
    """Start runs at a steady rate, and execute them."""
    app = hf.App(args.url)

    @app.workflow(TYPE)
    async def order(ctx: hf.Context) -> None:
        for name in "abc":
            await ctx.step(name, lambda: asyncio.sleep(STEP_SECONDS))

    clock = asyncio.get_running_loop().time
    async with app.worker(slots=10 * args.rate):
        begun, count = clock(), 0
        told = False
        while (passed := clock() - begun) < args.seconds + 4 * SETTLE_SECONDS:
            due = int(passed * args.rate) - count
            await app.start_many([(TYPE, None)] * due)
            count += due
            if passed > 2 * SETTLE_SECONDS and not told:
                told = True
                print("steady", flush=True)
            await asyncio.sleep(0.05)
    await app.close()
    return {"started_per_s": round(count / passed, 1)}


ALL = {each.__name__: each for each in (watcher, load)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(ALL[arguments.what](arguments))))
