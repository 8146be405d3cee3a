"""Claims a second under limits, in a process of its own: prints one JSON line."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any
from uuid import UUID

from holdfast.contract import Store
from holdfast.records import Ask, NewRun
from holdfast.stores import make_store

TYPE = "bench.noop.v1"
RUNS, BATCH = 2000, 20


def runs(count: int, salt: int, **fields: Any) -> list[NewRun]:
    """Return new runs with growing ids: those of a lower salt come first."""
    return [NewRun(id=UUID(int=salt << 64 | n), type=TYPE, **fields) for n in range(count)]


async def none(store: Store) -> None:
    """Set no limit."""


async def unrelated(store: Store) -> None:
    """Set limits for names that no run here has."""
    await store.limit("type", "other.type.v1", concurrency=1)
    await store.limit("key", "other.%", concurrency=1, rate=(10, 60.0))


async def held(store: Store) -> None:
    """Fill a key with 100,000 pending runs ahead of all others."""
    await store.limit("key", "full", concurrency=0)
    for salt in range(200):
        await store.start(runs(500, salt + 1, limit_key="full"))


async def roomy(store: Store) -> None:
    """Set a limit and a rate that count every claim, and are not reached."""
    await store.limit("type", TYPE, concurrency=100_000, rate=(1_000_000, 3600.0))


async def shared(store: Store) -> None:
    """Let twenty tenants take turns, each with a thousand runs."""
    await store.limit("tenant", "%", weight=1.0)
    for number in range(20):
        for half in range(2):
            await store.start(runs(500, 1000 + 2 * number + half, tenant=f"t{number:02}"))


ALL = {each.__name__: each for each in (none, unrelated, held, roomy, shared)}


async def main(args: argparse.Namespace) -> None:
    """Claim all runs, a batch at a time."""
    store = make_store(args.url)
    await store.open()
    await ALL[args.what](store)
    for part in range(RUNS // 500):
        await store.start(runs(500, 5000 + part))
    ask = Ask(worker="w", types=(TYPE,), limit=BATCH)
    begun, taken = time.perf_counter(), 0
    while taken < RUNS:
        claims = await store.claim(ask)
        assert len(claims) == BATCH
        taken += BATCH
    print(json.dumps({"claims_per_s": round(RUNS / (time.perf_counter() - begun))}))
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--url", required=True)
    asyncio.run(main(parser.parse_args()))
