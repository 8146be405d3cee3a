"""Large records: read in pages before the code begins, bounded in memory, and failing alone."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import StepFailed
from holdfast.bounds import MIB, NEWS_BYTES
from holdfast.engine import loading
from holdfast.engine.worker import Worker
from holdfast.errors import StoreError, Unavailable
from holdfast.lifecycle import Status
from holdfast.testing.faulty import Faulty
from tests.engine.kit import keys, outcome, until

BIG = "x" * 300_000


class Small(Faulty):
    """A store whose claims bring hardly any values, so that little is much."""

    async def claim(self, ask):
        return await self.inner.claim(msgspec.structs.replace(ask, bytes=min(ask.bytes, 1000)))

    async def load(self, lease, after=-1, bytes=0):
        self.pages = getattr(self, "pages", 0) + 1
        return await self.inner.load(lease, after, 1000)


def worker(app, store=None, **options):
    return Worker(store or app.store, app.world, app.workflows, **options)


@pytest.mark.spec("LEASE-1", "LEASE-19")
async def test_a_large_run_goes_on_with_all_its_steps(app):
    """Page by page, and no recorded step runs again."""
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

    store = Small(app.store)
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

    store = Small(app.store)
    async with worker(app, store):
        run = await app.start("shop.plan.v1", "y" * 5000)
        assert await outcome(app, run) == ("succeeded", "x" * 200)
    assert store.pages


@pytest.mark.spec("LEASE-19", "FLOW-2", "FLOW-9")
async def test_a_large_event_reaches_its_branch_in_the_order_of_the_store(app):
    """Beside a long step, by renewal; and a later execution sees the same winner."""
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
async def test_a_large_event_that_was_there_first_is_not_missed_by_a_park(app):
    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        return [len((await ctx.await_event("parcel")).payload) for _ in range(3)]

    run = await app.start(wait)
    for n in range(3):
        await app.emit("parcel", "z" * (NEWS_BYTES + n))
    async with worker(app):
        assert await outcome(app, run) == ("succeeded", [NEWS_BYTES + n for n in range(3)])


@pytest.mark.spec("FLOW-21", "RETRY-7")
async def test_a_run_holds_at_most_so_many_bytes(app, caplog):
    @app.workflow("shop.much.v1", bytes_max=1000)
    async def much(ctx):
        for n in range(20):
            await ctx.step(f"s{n}", lambda: "x" * 98)

    async with worker(app):
        run = await app.start(much)
        assert await outcome(app, run) == ("failed", "history")
    assert await keys(app, run) == [f"s{n}" for n in range(10)]
    assert caplog.text.count("has recorded half of its 1000 bytes") == 1
    assert "the run has recorded 1,000 bytes of values" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-21")
async def test_what_an_approval_shows_counts_too(app):
    @app.workflow("shop.ask.v1", bytes_max=1000)
    async def asks(ctx):
        await asyncio.gather(*(ctx.approval(f"a{n}", ask="Ship?", data="x" * 300) for n in range(5)))

    async with worker(app):
        assert await outcome(app, await app.start(asks)) == ("failed", "history")


@pytest.mark.spec("FLOW-21")
async def test_steps_at_the_same_time_count_together(app):
    @app.workflow("shop.much.v1", bytes_max=1000)
    async def much(ctx):
        async def one(n):
            try:
                return len(await ctx.step(f"s{n}", lambda: "x" * 298, key=f"k{n}"))
            except StepFailed as error:
                return error.kind

        return await asyncio.gather(*(one(n) for n in range(5)))

    async with worker(app):
        run = await app.start(much)
        assert await outcome(app, run) == ("succeeded", [298, 298, 298, "history", "history"])


@pytest.mark.spec("FLOW-21", "LEASE-19")
async def test_a_run_that_was_given_too_much_ends_before_it_is_read(app):
    """Events count too; a worker does not read more than a run may hold to find that out."""

    @app.workflow("shop.much.v1", bytes_max=1000)
    async def much(ctx):
        await asyncio.gather(*(ctx.await_event(f"t{n}") for n in range(20)))

    store = Small(app.store)
    async with worker(app, store):
        run = await app.start(much)
        await until(app, run, Status.WAITING)
    for n in range(20):
        await app.emit(f"t{n}", "x" * 500)
    store.pages = 0
    async with worker(app, store):
        assert await outcome(app, run) == ("failed", "history")
    assert store.pages < 6


@pytest.mark.spec("LEASE-19", "RETRY-7")
async def test_a_run_that_cannot_be_read_fails_alone(app):
    """However small the pages: kind too_large, after a bounded number of tries; its neighbours go on."""
    tried = []

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        return n

    class Broken(Small):
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
async def test_a_store_that_is_away_fails_no_run(app):
    """While nothing else is answered either, tries do not count."""
    away = [40]

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        return n

    class Away(Small):
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
async def test_a_claim_that_fails_is_tried_again_with_less(app):
    """Down to one run without its values: then it is leased, and the claim after it may ask for more."""
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
    async with worker(app, Picky(app.store), slots=100):
        assert [await outcome(app, run) for run in runs] == [("succeeded", n) for n in range(3)]
    assert [limit for limit, _ in asked[:5]] == [100, 25, 6, 1, 1]
    assert asked[4] == (1, 0)


@pytest.mark.spec("LEASE-19")
async def test_a_worker_holds_few_large_runs_at_a_time(app, monkeypatch):
    """Others wait a moment and are given back, refunded; small runs keep going."""
    monkeypatch.setattr(loading, "HELD_BYTES", 1000)
    held, most = 0, 0

    @app.workflow("shop.large.v1")
    async def large(ctx) -> int:
        nonlocal held, most
        text = await ctx.step("value", lambda: "x" * 2000)
        await ctx.sleep(seconds=60)
        held, most = held + 1, max(most, held + 1)
        await asyncio.sleep(10)
        held -= 1
        return len(text)

    @app.workflow("shop.small.v1")
    async def small(ctx, n: int) -> int:
        return n

    store = Small(app.store)
    async with worker(app, store):
        runs = [await app.start(large) for _ in range(5)]
        for run in runs:
            await until(app, run, Status.WAITING)
        await asyncio.sleep(65)
        canary = await app.start(small, 3)
        assert await outcome(app, canary, within=5) == ("succeeded", 3)
        assert [await outcome(app, run) for run in runs] == [("succeeded", 2000)] * 5
        assert most == 1
    assert [(await app.get(run.id)).attempt for run in runs] == [1] * 5


@pytest.mark.spec("LEASE-19", "FLOW-1")
async def test_large_results_do_not_stay_in_memory(app):
    """An execution again under the same lease reads them anew."""
    called, tries, sizes = [], [], []

    @app.workflow("shop.large.v1")
    async def large(ctx) -> int:
        text = await ctx.step("value", lambda: called.append(1) or BIG)
        (execution,) = now.leases.held.values()
        sizes.append(execution.record.held)
        assert execution.record.bytes == len(BIG) + 2
        if not tries:
            tries.append(1)
            raise Unavailable("once")
        return len(text)

    async with worker(app) as now:
        run = await app.start(large)
        assert await outcome(app, run) == ("succeeded", len(BIG))
    assert called == [1]
    assert sizes == [0, len(BIG) + 2]


@pytest.mark.spec("LEASE-19")
def test_the_bounds_are_as_the_documents_say():
    assert loading.HELD_BYTES == 128 * MIB
