"""Small runs, one after the other, in a process of their own: how late each is beside large work.

It says `ready`, goes on until it is told to end, and prints one JSON line. `--worker`: a worker of this
process executes them, and the runs that the large work wakes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import uvloop

import holdfast as hf
from bench.redis.filling import item, new
from bench.redis.slowlog import times
from holdfast.records import Ask, moves
from holdfast.stores.redis import RedisStore

SMALL, WAITER = "bench.small.v1", "bench.wait.v1"
PAUSE_SECONDS = 0.005


async def by_verbs(url: str, is_over: asyncio.Event) -> dict[str, object]:
    """Start, claim and complete one run after the other, without an engine."""
    store, found = RedisStore(url), list[float]()
    await store.open()
    _ready()
    while not is_over.is_set():
        at = time.perf_counter()
        await store.start([new(SMALL)])
        (one,) = await store.claim(Ask(worker="small", types=(SMALL,), limit=1))
        await store.commit([item(one, moves.Complete(result="null"))])
        found.append(1000 * (time.perf_counter() - at))
        await asyncio.sleep(PAUSE_SECONDS)
    await store.close()
    return times(found)._asdict()


async def by_worker(url: str, is_over: asyncio.Event) -> dict[str, object]:
    """Start one run after the other, and wait for its end."""
    app, found, woken = hf.App(url), list[float](), 0

    @app.workflow(SMALL)
    async def small(ctx: hf.Context, params: dict[str, int]) -> None:
        return None

    @app.workflow(WAITER)
    async def waits(ctx: hf.Context, params: dict[str, int]) -> None:
        nonlocal woken
        await ctx.await_event("news", key="wait")
        woken += 1

    async with app.worker(slots=100):
        _ready()
        while not is_over.is_set():
            at = time.perf_counter()
            handle = await app.start(SMALL, {"x": 1})
            await handle.result()
            found.append(1000 * (time.perf_counter() - at))
            await asyncio.sleep(PAUSE_SECONDS)
    await app.close()
    return {**times(found)._asdict(), "woken": woken}


def _ready() -> None:
    print("ready", flush=True)


async def main(args: argparse.Namespace) -> dict[str, object]:
    is_over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, is_over.set)
    return await (by_worker if args.worker else by_verbs)(args.url, is_over)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--worker", action="store_true")
    print(json.dumps(uvloop.run(main(parser.parse_args()))))
