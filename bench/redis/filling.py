"""Runs for the benchmarks of Redis: started, parked and ended by the verbs of the store, 100 at a time."""

from __future__ import annotations

import os
import time
from typing import Any

from holdfast.lifecycle import StepStatus
from holdfast.records import Ask, Claim, Item, NewRun, StepWrite, moves
from holdfast.stores.redis import RedisStore
from holdfast.world import uuid7

AT_ONCE = 100


def new(type_: str, **fields: Any) -> NewRun:
    """Return a run with an id as the library gives it: in the order of time."""
    id_ = uuid7(time.time_ns(), int.from_bytes(os.urandom(8)))
    return NewRun(id=id_, type=type_, params='{"x":1}', **fields)


def item(claim: Claim, move: Any, *steps: StepWrite, number: int = 1, **fields: Any) -> Item:
    return Item(
        run=claim.id, fence=claim.fence, number=number, lease_seconds=30.0, move=move, steps=steps, **fields
    )


async def started(store: RedisStore, type_: str, count: int, **fields: Any) -> None:
    for _ in range(0, count, AT_ONCE):
        await store.start([new(type_, **fields) for _ in range(AT_ONCE)])


async def claimed(store: RedisStore, type_: str) -> list[Claim]:
    return await store.claim(Ask(worker="bench", types=(type_,), limit=AT_ONCE))


async def parked(store: RedisStore, type_: str, count: int, **wait: Any) -> None:
    """Start runs that wait: for a time, or for an event."""
    step = StepWrite(key="wait", status=StepStatus.WAITING, **wait)
    for _ in range(0, count, AT_ONCE):
        await started(store, type_, AT_ONCE)
        await store.commit([item(one, moves.Park(), step) for one in await claimed(store, type_)])


async def finished(store: RedisStore, type_: str, count: int) -> None:
    for _ in range(0, count, AT_ONCE):
        await started(store, type_, AT_ONCE)
        done = [item(one, moves.Complete(result="null")) for one in await claimed(store, type_)]
        await store.commit(done)
