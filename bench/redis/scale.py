"""Redis with many runs: how long scripts take by the server's clock, with few runs and with many.

`python -m bench.redis.scale --runs 1000000` fills a private server by the verbs of the store.
The longest calls of a script say something only on a quiet machine: the server's clock goes on while others
have its processor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvloop

from bench.redis.filling import AT_ONCE, claimed, finished, item, parked, started
from bench.redis.slowlog import SlowLog, Times, say_longest
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, Lease, RunFilter, StepWrite, TrailWrite, moves
from holdfast.stores.redis import RedisStore
from servers.redis import Redis, running_redis

DAY = 86_400.0
ROUNDS = 60
SLEEPING = 20  # of them go to sleep at their end
LOGGED = 5000  # log rows of one item
LATER, SLEEPER, DONE, SMALL = (f"bench.{name}.v1" for name in ("later", "sleep", "done", "small"))
T = TypeVar("T")


async def median(call: Callable[[], Awaitable[Any]], times: int = 30) -> float:
    """Return the median time of a call, in milliseconds."""
    seconds = []
    for _ in range(times):
        at = time.perf_counter()
        await call()
        seconds.append(time.perf_counter() - at)
    return 1000 * statistics.median(seconds)


class Lap(NamedTuple):
    """The scripts of a verb: their times by the server's clock, and the milliseconds of a processor that the
    server had for each of them, with all that it did beside them. On a busy machine only the latter say
    something."""

    times: Times
    processor: float


class Laps:
    """Calls for 100 runs, by name."""

    def __init__(self, server: Redis) -> None:
        self._server, self._log = server, SlowLog(server)
        self.found: dict[str, Lap] = {}

    async def lap(self, name: str, calls: Awaitable[T]) -> T:
        self._log.begin()
        before = self._spent()
        answer = await calls
        spent = self._spent() - before
        found = self._log.take()
        number = sum(times.calls for times in found.values())
        for script, times in found.items():
            self.found[f"{name} ({script})"] = Lap(times, spent / 1e6 / number)
        return answer

    def _spent(self) -> int:
        """Return the nanoseconds that the server had a processor so far."""
        return int(Path(f"/proc/{self._server.pid}/schedstat").read_text().split()[0])


async def scripts(store: RedisStore, server: Redis) -> dict[str, Lap]:
    """Return how long the scripts of hot verbs take. Each takes 20 runs."""
    laps = Laps(server)
    count = ROUNDS * AT_ONCE
    await laps.lap("start", started(store, SMALL, count))
    claims = []

    async def claim_all() -> None:
        while found := await claimed(store, SMALL):
            claims.extend(found)

    await laps.lap("claim", claim_all())
    parts = [claims[at : at + AT_ONCE] for at in range(0, len(claims), AT_ONCE)]

    async def commit_all(move: Any, number: int, *steps: StepWrite) -> None:
        for part in parts:
            await store.commit([item(one, move, *steps, number=number) for one in part])

    async def renew_all() -> None:
        for part in parts:
            leases = [Lease(run=one.id, fence=one.fence) for one in part]
            await asyncio.to_thread(store.renew, "bench", leases, 30.0)

    await laps.lap("checkpoint", commit_all(moves.Checkpoint(), 1, StepWrite(key="one", output='{"i":1}')))
    await laps.lap("renew", renew_all())
    nap = StepWrite(key="nap", status=StepStatus.WAITING, kind=StepKind.SLEEP, delay_seconds=DAY)
    last = parts[-SLEEPING:]
    del parts[-SLEEPING:]
    await laps.lap("complete", commit_all(moves.Complete(result="null"), 2))
    parts = last
    await laps.lap("sleep", commit_all(moves.Park(), 2, nap))
    (one, *_) = await _held(store)
    rows = tuple(TrailWrite(type="log", data='{"message":"a line of text"}') for _ in range(LOGGED))
    much = item(one, moves.Checkpoint(), StepWrite(key="one", output="1"), trail=rows)
    await laps.lap(f"{LOGGED:,} log rows", store.commit([much]))
    return laps.found


async def _held(store: RedisStore) -> list[Any]:
    await started(store, SMALL, AT_ONCE)
    return await claimed(store, SMALL)


async def reads(store: RedisStore) -> dict[str, float]:
    """Return the median milliseconds of reads."""
    failed = RunFilter(tenant=ANY, statuses=(Status.FAILED,))
    return {
        "list of 20": await median(lambda: store.list(RunFilter(tenant=ANY), limit=20)),
        "list of 20 failed": await median(lambda: store.list(failed, limit=20)),
        "counts": await median(lambda: store.counts(ANY)),
        "scale": await median(lambda: store.scale(ANY)),
        "due": await median(lambda: store.due(types=(SMALL,))),
        "tick, nothing due": await median(store.tick),
    }


def memory(server: Redis) -> int:
    with server.client() as client:
        used: int = client.info("memory")["used_memory"]
        return used


def say(runs: int, few: dict[str, Lap], many: dict[str, Lap]) -> None:
    print(f"  {'a script of 20 runs, ms':28} {'with few runs':^28}   {f'with {runs:,}':^28}   ratios")
    heads = f"{'p50':>7}{'p99':>7}{'max':>7}{'proc.':>7}"
    print(f"  {'':28} {heads}   {heads}   of p50, of proc.")
    for name, there in many.items():
        here = few[name]
        ratios = f"{there.times.p50 / here.times.p50:5.2f}{there.processor / here.processor:9.2f}"
        late = f"  {there.times.late} of {there.times.calls} above 5 ms" if there.times.late else ""
        print(f"  {name:28} {_cells(here)}   {_cells(there)}   {ratios}{late}", flush=True)


def _cells(lap: Lap) -> str:
    times = lap.times
    return f"{times.p50:7.2f}{times.p99:7.2f}{times.longest:7.2f}{lap.processor:7.2f}"


async def measured(server: Redis, runs: int) -> None:
    store, log = RedisStore(server.url("bench")), SlowLog(server)
    await store.open()
    few, few_reads = await scripts(store, server), await reads(store)
    later, done, sleeping = runs * 72 // 100, runs * 25 // 100, runs * 3 // 100
    for name, count, fill in (
        ("scheduled for later", later, started(store, LATER, later, delay_seconds=DAY)),
        ("finished", done, finished(store, DONE, done)),
        ("sleeping", sleeping, parked(store, SLEEPER, sleeping, kind=StepKind.SLEEP, delay_seconds=DAY)),
    ):
        log.begin(1000)
        used, at = memory(server), time.perf_counter()
        await fill
        each = (memory(server) - used) / max(1, count)
        print(f"  {count:,} {name}: {time.perf_counter() - at:.0f} s, {each:,.0f} bytes each", flush=True)
        say_longest("of those above 1 ms", log.take())
    say(runs, few, await scripts(store, server))
    for name, milliseconds in (await reads(store)).items():
        print(f"  {name:28} {milliseconds:6.2f} ms, with few runs {few_reads[name]:6.2f}")
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.redis.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in the store")
    parser.add_argument(
        "--first", action="store_true", help="let the server go before other processes (needs root)"
    )
    parser.add_argument("--sync", choices=["everysec", "always"], default="everysec")
    args = parser.parse_args()
    with running_redis({"appendfsync": args.sync}, durable=True) as server:
        print(
            f"-- {args.runs:,} runs on Redis or Valkey {server.version}, appendfsync {args.sync}", flush=True
        )
        if args.first:
            os.setpriority(os.PRIO_PROCESS, server.pid, -20)
        uvloop.run(measured(server, args.runs))


if __name__ == "__main__":
    main()
