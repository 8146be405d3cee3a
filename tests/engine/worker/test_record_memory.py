"""Memory for large records: the limit of a run, and the limit of a worker at a time."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from holdfast import Backoff, StepFailed
from holdfast.bounds import MIB
from holdfast.engine.worker import loading
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.testing.faulty import Faulty
from tests.engine.kit import keys, outcome, until
from tests.engine.low_bounds import BIG, SmallPages, lower_memory_bounds, worker


@pytest.mark.spec("FLOW-21", "RETRY-7")
async def test_the_bytes_of_a_run_are_limited(app, caplog):
    @app.workflow("shop.much.v1", bytes_max=1000)
    async def much(ctx):
        for n in range(20):
            await ctx.step(f"s{n}", lambda: "x" * 98)

    async with worker(app):
        run = await app.start(much)
        assert await outcome(app, run) == ("failed", "history")
    assert await keys(app, run) == [f"s{n}" for n in range(10)]
    assert caplog.text.count("has recorded half of the 1000 bytes") == 1
    assert "the run has recorded 1,000 bytes of values" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-21")
async def test_the_shown_value_of_an_approval_counts_too(app):
    @app.workflow("shop.ask.v1", bytes_max=1000)
    async def asks(ctx):
        await asyncio.gather(*(ctx.approval(f"a{n}", ask="Ship?", data="x" * 300) for n in range(5)))

    async with worker(app):
        assert await outcome(app, await app.start(asks)) == ("failed", "history")


@pytest.mark.spec("FLOW-21")
async def test_concurrent_steps_count_together(app):
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
async def test_a_run_with_too_many_bytes_fails_before_it_is_read(app):
    """Events count too. A worker does not read more than the limit to find that out."""

    @app.workflow("shop.much.v1", bytes_max=1000)
    async def much(ctx):
        await asyncio.gather(*(ctx.await_event(f"t{n}") for n in range(20)))

    store = SmallPages(app.store)
    async with worker(app, store):
        run = await app.start(much)
        await until(app, run, Status.WAITING)
    for n in range(20):
        await app.emit(f"t{n}", "x" * 500)
    store.pages = 0
    async with worker(app, store):
        assert await outcome(app, run) == ("failed", "history")
    assert store.pages < 6


@pytest.mark.spec("LEASE-19")
async def test_a_worker_holds_few_large_runs_at_a_time(app, monkeypatch):
    """Other large runs wait a moment and are released without losing an attempt. Small runs continue."""
    lower_memory_bounds(monkeypatch)
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

    store = SmallPages(app.store)
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


@pytest.mark.spec("LEASE-19")
async def test_a_small_run_is_read_however_many_bytes_the_worker_holds(app, monkeypatch):
    """Only large records need memory quota: a run of some kilobytes is not released for an hour."""
    lower_memory_bounds(monkeypatch)

    @app.workflow("shop.large.v1")
    async def large(ctx) -> int:
        text = await ctx.step("value", lambda: "x" * 2000)
        await ctx.sleep(seconds=5)
        await asyncio.sleep(30)
        return len(text)

    @app.workflow("shop.small.v1")
    async def small(ctx, given: str) -> int:
        return len(given)

    class Unread(Faulty):
        async def claim(self, ask):
            return await self.inner.claim(msgspec.structs.replace(ask, bytes=0))

    async with worker(app, Unread(app.store)):
        run = await app.start(large)
        await asyncio.sleep(10)
        canary = await app.start(small, "y" * 300)
        assert await outcome(app, canary, within=5) == ("succeeded", 300)
        assert await outcome(app, run) == ("succeeded", 2000)


@pytest.mark.spec("LEASE-19")
async def test_the_record_of_a_run_does_not_block_its_own_next_execution(app, monkeypatch):
    """A run that is executed again under its lease reads its record again. The worker holds only that run."""
    lower_memory_bounds(monkeypatch)
    tries = []

    @app.workflow("shop.large.v1", retry=Backoff.fixed(0.1, attempts=5))
    async def large(ctx) -> int:
        text = await ctx.step("value", lambda: BIG)
        tries.append(1)
        if len(tries) < 4:
            raise Unavailable("again")
        return len(text)

    async with worker(app):
        run = await app.start(large)
        assert await outcome(app, run) == ("succeeded", len(BIG))
    assert "full" not in str([entry.data for entry in await app.trail(run.id)])


@pytest.mark.spec("FLOW-2", "LEASE-19")
async def test_the_start_of_a_child_does_not_overtake_an_earlier_event(app):
    """An event from before the start of a child is delivered before it, whatever its size."""
    gate, seen, tries = asyncio.Event(), [], []

    class Slow(Faulty):
        async def commit(self, items):
            if any(step.kind == "child" for item in items for step in item.steps):
                gate.set()
                await asyncio.sleep(5)  # in flight to the store: the event comes first
            return await self.inner.commit(items)

    @app.workflow("shop.kid.v1")
    async def kid(ctx):
        return 1

    @app.workflow("shop.race.v1", retry=Backoff.fixed(3))
    async def race(ctx):
        order = []
        seen.append(order)

        async def event():
            await ctx.await_event("parcel")
            order.append("event")

        async def start():
            await ctx.step("before", asyncio.sleep, 2)
            await ctx.start(kid)
            order.append("started")
            await ctx.step("after", asyncio.sleep, 20)

        await asyncio.gather(event(), start())
        if not tries:
            tries.append(1)
            raise Unavailable("once")

    async with worker(app, Slow(app.store)):
        run = await app.start(race)
        await gate.wait()
        await app.emit("parcel", "z" * 200_000)
        assert (await outcome(app, run))[0] == "succeeded"
    assert seen[0] == seen[1] == ["event", "started"]


@pytest.mark.spec("FLOW-21")
async def test_waits_that_are_given_up_or_settled_are_counted_once(app):
    """An opened question counts once, also after its answer.

    A question that was never opened does not count.
    """

    @app.workflow("shop.ask.v1", bytes_max=1000)
    async def asks(ctx):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await ctx.approval("never", ask="Ship?", data="x" * 400)
        decision = await ctx.approval("once", ask="Ship?", data="x" * 400)
        await ctx.step("small", lambda: "y" * 200)
        return decision.approved

    async with worker(app):
        run = await app.start(asks)
        await until(app, run, Status.WAITING)
        await app.approve(run.id, "once")
        assert await outcome(app, run) == ("succeeded", True)


@pytest.mark.spec("LEASE-19")
async def test_an_error_of_the_reader_releases_its_run(app):
    """After an error while large values are read the run is released and claimed again."""
    broken = [3]

    class Broken(Faulty):
        async def load(self, lease, after=-1, bytes=0):
            if broken[0]:
                broken[0] -= 1
                raise ValueError("a bug in the store")
            return await self.inner.load(lease, after, bytes)

        async def due(self, *args, **fields):
            if broken[0]:
                raise ValueError("a bug in the store")
            return await self.inner.due(*args, **fields)

    @app.workflow("shop.wait.v1")
    async def wait(ctx):
        return len((await ctx.await_event("parcel")).payload)

    run = await app.start(wait)
    await app.emit("parcel", "z" * 200_000)
    async with worker(app, Broken(app.store)):
        assert await outcome(app, run) == ("succeeded", 200_000)


@pytest.mark.spec("FLOW-1", "START-9")
async def test_a_large_result_is_the_same_now_and_after_reading(app):
    """The result is kept as text until its commit, and read from that text afterwards."""
    seen, tries = [], []

    @app.workflow("shop.large.v1")
    async def large(ctx) -> int:
        value = await ctx.step("value", lambda: {"a": ("x" * 2 * MIB, 1.0)})
        seen.append(value)
        if not tries:
            tries.append(1)
            raise Unavailable("once")
        return 1

    async with worker(app):
        assert (await outcome(app, await app.start(large)))[0] == "succeeded"
    assert seen == [{"a": ["x" * 2 * MIB, 1.0]}] * 2


@pytest.mark.spec("LEASE-19", "FLOW-1")
async def test_large_results_do_not_stay_in_memory(app):
    """A second execution under the same lease reads the results anew."""
    called, tries, sizes = [], [], []

    @app.workflow("shop.large.v1")
    async def large(ctx) -> int:
        text = await ctx.step("value", lambda: called.append(1) or BIG)
        (execution,) = now.leases.held.values()
        sizes.append(execution.record.memory)
        assert execution.record.bytes == len(BIG) + 2
        if not tries:
            tries.append(1)
            raise Unavailable("once")
        return len(text)

    async with worker(app) as now:
        run = await app.start(large)
        assert await outcome(app, run) == ("succeeded", len(BIG))
    assert called == [1]
    assert sizes == [len("null"), len("null") + len(BIG) + 2]


@pytest.mark.spec("LEASE-19")
def test_the_bounds_match_the_documentation():
    assert loading.HELD_BYTES == 128 * MIB
