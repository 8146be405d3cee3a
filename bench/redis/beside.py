"""Large work beside small runs on Redis: an event for many waiters, and a purge of many runs.

`python -m bench.redis.beside`. Small runs go one after the other in another process; the goal is that none is
later than a second.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Awaitable

import uvloop

from bench.measurements import begun, ended, send_go, wait_for
from bench.redis.filling import finished, parked
from bench.redis.slowlog import SlowLog, say_longest
from bench.redis.small import WAITER
from holdfast.lifecycle import StepKind
from holdfast.records import NewEvent
from holdfast.stores.redis import RedisStore
from servers.redis import Redis, running_redis

DONE = "bench.done.v1"
PREFIX = "bench"


async def emitted(store: RedisStore, topic: str) -> None:
    answer = await store.emit(NewEvent(topic=topic, id=topic))
    print(f"  the event woke {answer.woken:,} runs", flush=True)


async def purged(store: RedisStore, count: int) -> None:
    """Purge so many runs. The small runs end meanwhile, so there are always more."""
    while count > 0:
        count -= (await store.purge(ttl_seconds=0.0)).runs


async def beside(server: Redis, what: str, work: Awaitable[None], *words: str) -> None:
    """Do large work while small runs go on; print how late they were."""
    log = SlowLog(server)
    with begun("redis.small", "--url", server.url(PREFIX), *words) as small:
        wait_for(small, "ready")
        log.begin(500)
        at = time.perf_counter()
        await work
        took = time.perf_counter() - at
        row = _over(small)
    print(
        f"  {what} took {took:.1f} s; {row['calls']:,} small runs beside it: p50 {row['p50']:.1f} ms, "
        f"p99 {row['p99']:.1f} ms, longest {row['longest']:.0f} ms  (goal <= 1000)",
        flush=True,
    )
    say_longest("of those above 0.5 ms", log.take())


def _over(small: subprocess.Popen[str]) -> dict[str, float]:
    send_go(small)
    return ended(small)


async def measured(server: Redis, waiters: int, runs: int) -> None:
    store = RedisStore(server.url(PREFIX))
    await store.open()
    for words in ((), ("--worker",)):
        topic = "news" if words else "others"
        type_ = WAITER if words else "bench.others.v1"
        at = time.perf_counter()
        await parked(store, type_, waiters, kind=StepKind.EVENT, topic=topic)
        print(f"  {waiters:,} runs wait, after {time.perf_counter() - at:.0f} s", flush=True)
        who = "and a worker that executes them" if words else "and no worker"
        await beside(server, f"an event for {waiters:,} waiters {who}", emitted(store, topic), *words)
    at = time.perf_counter()
    await finished(store, DONE, runs)
    print(f"  {runs:,} runs have ended, after {time.perf_counter() - at:.0f} s", flush=True)
    await beside(server, f"a purge of {runs:,} runs", purged(store, runs))
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.redis.beside", description=__doc__)
    parser.add_argument("--waiters", type=int, default=20_000, help="runs that wait for one event")
    parser.add_argument("--runs", type=int, default=100_000, help="runs that are purged")
    parser.add_argument("--sync", choices=["everysec", "always"], default="everysec")
    args = parser.parse_args()
    with running_redis({"appendfsync": args.sync}, durable=True) as server:
        print(f"-- Redis or Valkey {server.version}, appendfsync {args.sync}", flush=True)
        uvloop.run(measured(server, args.waiters, args.runs))


if __name__ == "__main__":
    main()
