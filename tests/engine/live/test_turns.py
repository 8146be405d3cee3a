"""Reads of subscribers: tenants take turns, and unread pages are bounded."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.live import live as module
from holdfast.engine.live import subscriptions
from holdfast.engine.live.turns import Turns
from tests.engine.live.kit import Job

pytestmark = pytest.mark.spec("TRAIL-3")


async def test_many_streams_of_one_tenant_hold_up_no_other(live, store, world):
    """One read of another tenant waits for one of theirs, not for all."""
    acme = await Job(store, world, "acme").start()
    bolt = await Job(store, world, "bolt").start()
    store.held.add("follow")
    behind = [asyncio.create_task(live.trail(acme.id, "acme").__aenter__()) for _ in range(50)]
    await asyncio.sleep(0.01)
    poll = asyncio.create_task(live.ended(bolt.id, "bolt", 0))
    await asyncio.sleep(1)
    assert store.reads["follow"] >= module.READS_MAX  # the reader looks too
    before = store.reads["follow"]
    assert not poll.done()
    gets = store.reads["get"]
    store.let_go()
    while store.reads["get"] == gets:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0)
    assert store.reads["follow"] - before <= module.READS_MAX + 2
    assert await poll is None
    for one in await asyncio.gather(*behind):
        await one.__aexit__(None, None, None)


async def test_owners_take_turns_and_a_cancelled_wait_passes_its_place_on():
    turns, order, held = Turns(1), [], asyncio.Event()

    async def read(owner, n):
        async with turns.of(owner):
            order.append(f"{owner}{n}")
            await held.wait()

    tasks = [asyncio.create_task(read("a", 0))]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(read(owner, n)) for owner in "ab" for n in (1, 2, 3)]
    tasks.append(asyncio.create_task(read(None, 1)))
    await asyncio.sleep(0)
    tasks[2].cancel()
    held.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a0", "a1", "b1", "None1", "a3", "b2", "b3"]
    held.clear()
    first, second = asyncio.create_task(read("a", 8)), asyncio.create_task(read("b", 8))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    second.cancel()  # at the moment in which it gets the place
    await asyncio.gather(first, second, return_exceptions=True)
    async with asyncio.timeout(1), turns.of("c"):
        pass


async def test_pages_that_nobody_takes_are_small_when_there_are_many(live, store, world, monkeypatch):
    monkeypatch.setattr(subscriptions, "BUFFERS_BYTES", 400_000)
    job = await (await Job(store, world).start()).take()
    await job.log(60, size=4000)
    trails = [live.trail(job.id, "default") for _ in range(20)]
    for one in trails:
        await one.__aenter__()
    assert live.buffered < 600_000
    for one in trails:
        got = 0
        async for _ in one:
            got += 1
            if got == 62:  # created, leased and sixty lines
                break
        await one.__aexit__(None, None, None)
    assert live.buffered == 0
