"""Large records: read in pages before the code begins, bounded in memory, and failing alone."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.bounds import NEWS_BYTES
from holdfast.engine.worker import loading
from holdfast.errors import StoreError, Unavailable
from holdfast.lifecycle import Status
from holdfast.testing.faulty import Faulty
from tests.engine.kit import outcome, until
from tests.engine.low_bounds import SmallPages, worker


@pytest.mark.spec("LEASE-1", "LEASE-19")
async def test_a_large_run_continues_with_all_its_steps(app):
    """The record is read page by page, and no recorded step runs again."""
    called, tries = [], []

    @app.workflow("shop.large.v1")
    async def large(ctx, given: str) -> int:
        total = 0
        for n in range(30):
            total += len(await ctx.step(f"s{n}", lambda n=n: called.append(n) or "x" * (100 + n)))
        if not tries:
            tries.append(1)
            raise Unavailable("once")
        return total + len(given)

    store = SmallPages(app.store)
    async with worker(app, store):
        run = await app.start(large, "y" * 5000)
        assert await outcome(app, run) == ("succeeded", sum(range(100, 130)) + 5000)
    assert called == list(range(30))
    assert store.pages > 3


@pytest.mark.spec("LEASE-19")
async def test_a_plan_is_read_in_pages_too(app):
    from holdfast import Task

    plan = app.plan("shop.plan.v1", [Task(f"T{n}") for n in range(12)])
    for n in range(12):
        plan.task(f"T{n}")(lambda _task: "x" * 200)

    store = SmallPages(app.store)
    async with worker(app, store):
        run = await app.start("shop.plan.v1", "y" * 5000)
        assert await outcome(app, run) == ("succeeded", "x" * 200)
    assert store.pages


@pytest.mark.spec("LEASE-19", "FLOW-2", "FLOW-9")
async def test_a_large_event_reaches_its_branch_in_the_order_of_the_store(app):
    """The event comes beside a long step, by renewal. A later execution sees the same winner."""
    seen, tries = [], []

    async def slow():
        await asyncio.sleep(20)
        return "slow"

    @app.workflow("shop.race.v1")
    async def race(ctx):
        first = asyncio.ensure_future(ctx.await_event("parcel"))
        second = asyncio.ensure_future(ctx.step("slow", slow))
        done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        seen.append("event" if first in done else "step")
        size = len((await first).payload) + len(await second)
        if not tries:
            tries.append(1)
            raise Unavailable("once")
        return size

    async with worker(app):
        run = await app.start(race)
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
        await app.emit("parcel", "z" * (2 * NEWS_BYTES))
        assert await outcome(app, run) == ("succeeded", 2 * NEWS_BYTES + 4)
    assert seen == ["event", "event"]


@pytest.mark.spec("LEASE-19", "MOVE-8")
async def test_a_park_does_not_miss_a_large_event_that_came_before_it(app):
    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        return [len((await ctx.await_event("parcel")).payload) for _ in range(3)]

    run = await app.start(wait)
    for n in range(3):
        await app.emit("parcel", "z" * (NEWS_BYTES + n))
    async with worker(app):
        assert await outcome(app, run) == ("succeeded", [NEWS_BYTES + n for n in range(3)])


@pytest.mark.spec("LEASE-19", "RETRY-7")
async def test_a_run_that_cannot_be_read_fails_alone(app):
    """The error has kind too_large, after a bounded number of tries with ever smaller pages.

    Neighbours continue.
    """
    tried = []

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        return n

    class Broken(SmallPages):
        async def load(self, lease, after=-1, bytes=0):
            if lease.run == bad.id:
                tried.append(bytes)
                raise StoreError("cannot enlarge string buffer")
            return await super().load(lease, after, bytes)

        async def claim(self, ask):
            return await self.inner.claim(msgspec.structs.replace(ask, bytes=0))

    bad = await app.start(order, 1)
    good = [await app.start(order, n) for n in range(5)]
    async with worker(app, Broken(app.store)):
        assert [await outcome(app, run) for run in good] == [("succeeded", n) for n in range(5)]
        assert await outcome(app, bad) == ("failed", "too_large")
    assert len(tried) == loading.READ_TRIES
    assert tried == sorted(tried, reverse=True)
    assert tried[-1] < 100


@pytest.mark.spec("LEASE-19")
async def test_an_unreachable_store_fails_no_run(app):
    """While the store answers no other call either, tries do not count."""
    away = [40]

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        return n

    class Away(SmallPages):
        async def load(self, lease, after=-1, bytes=0):
            if away[0] > 0:
                away[0] -= 1
                raise Unavailable("away")
            return await super().load(lease, after, bytes)

        async def due(self, *args, **fields):
            if away[0] > 0:
                raise Unavailable("away")
            return await self.inner.due(*args, **fields)

        async def claim(self, ask):
            return await self.inner.claim(msgspec.structs.replace(ask, bytes=0))

    run = await app.start(order, 7)
    async with worker(app, Away(app.store)):
        assert await outcome(app, run) == ("succeeded", 7)


@pytest.mark.spec("LEASE-19")
async def test_a_failed_claim_is_retried_with_less(app):
    """The claim shrinks down to one run without its values. The next claim may ask for more."""
    asked = []

    class Picky(Faulty):
        async def claim(self, ask):
            asked.append((ask.limit, ask.bytes))
            if ask.limit > 1 or ask.bytes:
                raise StoreError("Cannot enlarge string buffer containing 1072099958 bytes")
            return await self.inner.claim(ask)

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        return n

    runs = [await app.start(order, n) for n in range(3)]
    async with worker(app, Picky(app.store), slots=400):  # a quarter of them for runs of the engine itself
        assert [await outcome(app, run) for run in runs] == [("succeeded", n) for n in range(3)]
    assert [limit for limit, _ in asked[:5]] == [100, 25, 6, 1, 1]
    assert asked[4] == (1, 0)
