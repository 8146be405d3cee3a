"""The engine under load, in a process of its own: prints one JSON line, like the bare limit does."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import time
from pathlib import Path

import uvloop

import holdfast as hf

TYPE = "bench.noop.v1"


def fresh(file: str) -> hf.App:
    """An app on a new file."""
    for suffix in ("", "-wal", "-shm", "-turn", "-next"):
        Path(file + suffix).unlink(missing_ok=True)
    return hf.App(f"sqlite:///{file}")


async def noop(i: int) -> dict[str, int]:
    """The cheapest step there is."""
    return {"i": i}


def define(app: hf.App, args: argparse.Namespace, done: asyncio.Event, waits: list[float]) -> None:
    """A workflow of so many steps; `done` is set when so many runs have come to their last line."""
    ended, steps, runs = 0, args.steps, args.runs

    @app.workflow(TYPE, checkpoint=args.checkpoint)
    async def load(ctx: hf.Context, params: dict[str, int]) -> dict[str, bool]:
        nonlocal ended
        for i in range(steps):
            at = time.perf_counter()
            await ctx.step(f"step-{i}", noop, i)
            waits.append(time.perf_counter() - at)
        ended += 1
        if ended == runs:
            done.set()
        return {"ok": True}


async def throughput(args: argparse.Namespace) -> dict[str, object]:
    """Runs of so many steps, so many in flight."""
    waits: list[float] = []
    app, done = fresh(args.file), asyncio.Event()
    define(app, args, done, waits)
    begun = time.perf_counter()
    await app.start_many([(TYPE, {"x": 1})] * args.runs)
    started = time.perf_counter()
    async with app.worker(slots=args.flight) as worker, asyncio.timeout(120):
        await done.wait()
        while worker.busy:
            await asyncio.sleep(0.001)
        took = time.perf_counter() - started
    await app.close()
    waits.sort()
    return {
        "engine": "sqlite", "runs": args.runs, "steps": args.steps, "flight": args.flight,
        "starts_per_s": round(args.runs / (started - begun)), "runs_per_s": round(args.runs / took),
        "steps_per_s": round(args.runs * args.steps / took),
        "step_ms_p50": round(waits[len(waits) // 2] * 1e3, 3) if waits else None,
        "step_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 3) if waits else None,
    }  # fmt: skip


async def latency(args: argparse.Namespace) -> dict[str, object]:
    """From the call of start to the first line of user code, one at a time, in one process."""
    begun: dict[str, float] = {}
    seen: list[float] = []
    app = fresh(args.file)
    reached = asyncio.Event()

    @app.workflow(TYPE)
    async def first(ctx: hf.Context, params: dict[str, int]) -> None:
        seen.append(time.perf_counter() - begun["at"])
        reached.set()

    async with app.worker(slots=10):
        for n in range(args.runs):
            await asyncio.sleep(0.01)
            reached.clear()
            begun["at"] = time.perf_counter()
            await app.start(first, {"n": n})
            await reached.wait()
    await app.close()
    return _percentiles(seen)


async def listener(args: argparse.Namespace) -> dict[str, object]:
    """The worker's half of the latency across processes: params carry the sender's clock."""
    seen: list[float] = []
    app, done = hf.App(f"sqlite:///{args.file}"), asyncio.Event()

    @app.workflow(TYPE)
    async def first(ctx: hf.Context, params: dict[str, int]) -> None:
        seen.append(time.monotonic() - params["at"] / 1e9)
        if len(seen) == args.runs:
            done.set()

    async with app.worker(slots=10):
        Path(args.file + ".ready").touch()
        await done.wait()
    await app.close()
    return _percentiles(seen)


async def sender(args: argparse.Namespace) -> dict[str, object]:
    """The starter's half."""
    app = hf.App(f"sqlite:///{args.file}")
    while not Path(args.file + ".ready").exists():
        await asyncio.sleep(0.01)
    for _ in range(args.runs):
        await asyncio.sleep(0.02)
        await app.start(TYPE, {"at": time.monotonic_ns()})
    await app.close()
    return {"sent": args.runs}


async def sleeping(args: argparse.Namespace) -> dict[str, object]:
    """What so many sleeping runs add to the worker's memory."""
    app, parked = fresh(args.file), 0

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
        await round_(args.runs)  # page caches and statement texts: bounded, and paid once
        warm = await round_(args.runs)
        full = await round_(args.runs)
    await app.close()
    return {"sleeping": args.runs, "rss_kib_before": warm, "rss_kib_added": full - warm}


def _percentiles(seen: list[float]) -> dict[str, object]:
    seen.sort()
    return {
        "n": len(seen),
        "ms_p50": round(seen[len(seen) // 2] * 1e3, 2),
        "ms_p99": round(seen[int(len(seen) * 0.99)] * 1e3, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["throughput", "latency", "listener", "sender", "sleeping"])
    parser.add_argument("--file", required=True)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--flight", type=int, default=300)
    parser.add_argument("--checkpoint", default="step", choices=["step", "segment"])
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(globals()[arguments.what](arguments))))
