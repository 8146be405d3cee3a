"""The engine under load, in a process of its own: prints one JSON line, like the bare limit."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Literal

import uvloop

import holdfast as hf
from bench.cpu import cpu_seconds

TYPE = "bench.noop.v1"
PART = 500
QUIET_SECONDS = 0.5
Mode = Literal["step", "segment"]


async def noop(i: int) -> dict[str, int]:
    """Do nothing: the cheapest step."""
    return {"i": i}


class Load:
    """A workflow of some steps, and the times at which its runs ended."""

    def __init__(self, app: hf.App, steps: int, checkpoint: Mode, *, plan: bool = False) -> None:
        self.ended, self.ended_at = 0, 0.0
        self.waits: list[float] = []
        self.last, self.done = 0, asyncio.Event()  # done: set when this number of runs has ended
        if plan:
            self._plan(app, steps)
        else:
            self._code(app, steps, checkpoint)

    def _plan(self, app: hf.App, steps: int) -> None:
        names = [f"step-{i}" for i in range(steps)]
        plan = app.plan(TYPE, [hf.Task(name) for name in names])

        async def handler(task: hf.PlanTask) -> dict[str, int]:
            if task.name == names[-1]:
                self._end()
            return {"i": 1}

        for name in names:
            plan.task(name)(handler)

    def _code(self, app: hf.App, steps: int, checkpoint: Mode) -> None:
        @app.workflow(TYPE, checkpoint=checkpoint)
        async def load(ctx: hf.Context, params: dict[str, int]) -> dict[str, bool]:
            for i in range(steps):
                at = time.perf_counter()
                await ctx.step(f"step-{i}", noop, i)
                self.waits.append(time.perf_counter() - at)
            self._end()
            return {"ok": True}

    def _end(self) -> None:
        self.ended += 1
        self.ended_at = time.monotonic()
        if self.ended == self.last:
            self.done.set()


async def fill(app: hf.App, runs: int) -> None:
    """Start a number of runs, in parts."""
    for begun in range(0, runs, PART):
        await app.start_many([(TYPE, {"x": 1})] * min(PART, runs - begun))


async def throughput(args: argparse.Namespace) -> dict[str, object]:
    """Measure runs of some steps, with a number of runs in flight."""
    app = hf.App(args.url)
    load = Load(app, args.steps, args.checkpoint, plan=args.plan)
    load.last = args.runs
    await app.store.open()
    begun = time.perf_counter()
    await fill(app, args.runs)
    started, cpu, served = time.perf_counter(), time.process_time(), cpu_seconds(args.server)
    async with app.worker(slots=args.flight) as worker, asyncio.timeout(300):
        await load.done.wait()
        while worker.busy:
            await asyncio.sleep(0.001)
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        served = cpu_seconds(args.server) - served
    await app.close()
    waits, items = sorted(load.waits), args.runs * max(1, args.steps)
    return {
        "runs": args.runs, "steps": args.steps, "flight": args.flight,
        "starts_per_s": round(args.runs / (started - begun)), "runs_per_s": round(args.runs / took),
        "steps_per_s": round(args.runs * args.steps / took),
        "step_ms_p50": round(waits[len(waits) // 2] * 1e3, 3) if waits else None,
        "step_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 3) if waits else None,
        "cpu_us": round(cpu / items * 1e6, 1), "server_cpu_us": round(served / items * 1e6, 1),
    }  # fmt: skip


async def start(args: argparse.Namespace) -> dict[str, object]:
    """Start runs for other processes."""
    app = hf.App(args.url)
    Load(app, args.steps, args.checkpoint)
    await fill(app, args.runs)
    await app.close()
    return {"started": args.runs}


async def starts(args: argparse.Namespace) -> dict[str, object]:
    """Measure tasks that start one run after the other; no worker executes the runs."""
    app = hf.App(args.url)
    Load(app, args.steps, args.checkpoint)
    await app.start(TYPE, {"x": 1})  # the first call opens the store
    each, waits = args.runs // args.flight, []

    async def caller() -> None:
        for _ in range(each):
            at = time.perf_counter()
            await app.start(TYPE, {"x": 1})
            waits.append(time.perf_counter() - at)

    begun, cpu, served = time.perf_counter(), time.process_time(), cpu_seconds(args.server)
    await asyncio.gather(*(caller() for _ in range(args.flight)))
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    served = cpu_seconds(args.server) - served
    await app.close()
    waits.sort()
    return {
        "starts_per_s": round(len(waits) / took), "start_ms_p50": round(waits[len(waits) // 2] * 1e3, 3),
        "start_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 3),
        "cpu_us": round(cpu / len(waits) * 1e6, 1), "server_cpu_us": round(served / len(waits) * 1e6, 1),
    }  # fmt: skip


async def drain(args: argparse.Namespace) -> dict[str, object]:
    """Be one of several workers: begin on a signal, end when no run has come for a while."""
    app = hf.App(args.url)
    load = Load(app, args.steps, args.checkpoint)
    await app.store.open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    load.ended_at, cpu = time.monotonic(), time.process_time()
    async with app.worker(slots=args.flight) as worker:
        while worker.busy or time.monotonic() - load.ended_at < QUIET_SECONDS:
            await asyncio.sleep(0.01)
    cpu = time.process_time() - cpu
    await app.close()
    return {"ended": load.ended, "ended_at": load.ended_at, "cpu_seconds": cpu}


async def steady(args: argparse.Namespace) -> dict[str, object]:
    """Run without an end, always with enough runs: print the number of steps every second."""
    app = hf.App(args.url)
    load = Load(app, args.steps, args.checkpoint)
    await app.store.open()
    until, started, told = time.monotonic() + args.seconds, 0, 0.0
    async with app.worker(slots=args.flight):
        while (now := time.monotonic()) < until:
            if started - load.ended < 2 * args.flight:
                await fill(app, PART)
                started += PART
            if now - told >= 1:
                told = now
                print(json.dumps({"at": now, "steps": len(load.waits)}), flush=True)
            await asyncio.sleep(0.005)
    await app.close()
    return {"steps": len(load.waits)}


async def idle(args: argparse.Namespace) -> dict[str, object]:
    """Measure a worker with nothing to do: its share of a core."""
    app = hf.App(args.url)
    Load(app, args.steps, args.checkpoint)
    async with app.worker(slots=10):
        await asyncio.sleep(2)
        print("ready", flush=True)
        cpu = time.process_time()
        await asyncio.sleep(args.seconds)
        cpu = time.process_time() - cpu
        print("over", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    await app.close()
    return {"share": round(cpu / args.seconds, 5)}


async def sleeping(args: argparse.Namespace) -> dict[str, object]:
    """Measure the memory that sleeping runs add to a worker."""
    app, parked = hf.App(args.url), 0

    @app.workflow(TYPE)
    async def nap(ctx: hf.Context, params: dict[str, int]) -> None:
        nonlocal parked
        parked += 1
        await ctx.sleep(days=30)

    async def round_(runs: int) -> int:
        nonlocal parked
        parked = 0
        for _ in range(runs // 100):
            await app.start_many([(TYPE, {"x": 1})] * 100)
        while parked < runs or worker.busy:
            await asyncio.sleep(0.01)
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() // 1024

    async with app.worker(slots=100) as worker:
        await round_(args.runs)  # page caches and statement texts: bounded, and used once
        warm = await round_(args.runs)
        full = await round_(args.runs)
    await app.close()
    return {"sleeping": args.runs, "rss_kib_before": warm, "rss_kib_added": full - warm}


ALL = {each.__name__: each for each in (throughput, start, starts, drain, steady, idle, sleeping)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", required=True)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--flight", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--server", type=int, default=0, help="the process id of the store's server")
    parser.add_argument("--checkpoint", default="step", choices=["step", "segment"])
    parser.add_argument("--plan", action="store_true", help="runs of a plan instead of code")
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(ALL[arguments.what](arguments))))
