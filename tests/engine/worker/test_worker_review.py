"""Cases found in review: a worker could stand still, spin, or never stop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast import App, Backoff, Status
from holdfast.records import Answer, Verdict
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty import Faulty, fail_before
from holdfast.world import RealWorld
from tests.engine.kit import outcome, trail


def run_in_real_time(scene):
    async def limited():
        async with asyncio.timeout(10):
            await scene()

    asyncio.run(limited())


async def test_a_claim_that_fails_with_an_unknown_error_is_retried(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async def odd(call):
        raise ValueError("a bug of the store")

    async with app.worker():
        app.store.plan("claim", 1, odd)
        app.store.plan("tick", 1, odd)
        run = await app.start(order)
        assert await run.result(60) == 1


async def test_a_renewal_that_fails_with_an_unknown_error_is_retried(store, world, monkeypatch):
    app, beats = App(store, world=world), []
    renew = store.renew

    def odd(*args):
        beats.append(1)
        if len(beats) == 1:
            raise ValueError("a bug of the store")
        return renew(*args)

    monkeypatch.setattr(store, "renew", odd)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("long", asyncio.sleep, 100, 1)

    async with app.worker():
        run = await app.start(order)
        assert await run.result(200) == 1
    assert "lease_expired" not in await trail(app, run)


@pytest.mark.spec("LEASE-10")
async def test_a_worker_stops_even_if_the_store_is_unreachable(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 1000)

    async with asyncio.timeout(300):
        async with app.worker(grace=1):
            await app.start(order)
            await asyncio.sleep(1)
            app.store.always("commit", fail_before)
    assert world.monotonic() < 100


@pytest.mark.spec("LEASE-18")
async def test_a_locked_row_is_retried_at_a_moderate_pace(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async def busy(call):
        if world.monotonic() > 3 or calls["n"] > 5000:
            return await call()
        calls["n"] += 1
        return [Verdict(answer=Answer.BUSY, status=Status.LEASED)]

    calls = {"n": 0}
    app.store.always("commit", busy)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == 1
    assert 1 < calls["n"] < 1000


def test_a_sync_step_that_raises_stop_iteration_fails_and_does_not_hang():
    async def scene():
        app = App(MemoryStore())

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("empty", lambda: next(iter([])), retry=Backoff.none())

        async with app.worker(grace=0):
            run = await app.start(order)
            assert await outcome(app, run, 5) == ("failed", "exhausted")

    run_in_real_time(scene)


@pytest.mark.spec("RETRY-6")
def test_a_step_that_waits_for_a_thread_does_not_time_out_before_it_begins():
    async def scene():
        app = App(MemoryStore(), world=RealWorld(threads=1))

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("nap", time.sleep, 0.2, timeout=0.5, retry=Backoff.none())

        async with app.worker(grace=0):
            runs = [await app.start(order) for _ in range(5)]
            for run in runs:
                assert await outcome(app, run, 5) == ("succeeded", None)

    run_in_real_time(scene)


@pytest.mark.spec("LEASE-10")
def test_a_worker_stops_even_if_all_threads_are_stuck():
    release = threading.Event()

    async def scene():
        app = App(MemoryStore(), world=RealWorld(threads=1))

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("stuck", release.wait, 8)

        try:
            async with app.worker(grace=0):
                await app.start(order)
                await asyncio.sleep(0.2)
            assert not release.is_set()
        finally:
            release.set()

    begun = time.monotonic()
    run_in_real_time(scene)
    assert time.monotonic() - begun < 5


@pytest.mark.spec("RETRY-6")
def test_a_sync_function_past_its_timeout_can_see_that():
    cancelled_seen = []

    async def scene():
        app = App(MemoryStore())

        @app.workflow("shop.order.v1")
        async def order(ctx):
            def slow():
                for _ in range(100):
                    time.sleep(0.02)
                    if ctx.cancelled:
                        cancelled_seen.append(1)
                        return

            await ctx.step("slow", slow, timeout=0.2, retry=Backoff.none())

        async with app.worker(grace=0):
            run = await app.start(order)
            assert await outcome(app, run, 5) == ("failed", "timeout")
        await asyncio.sleep(0.1)

    run_in_real_time(scene)
    assert cancelled_seen == [1]


@pytest.mark.spec("CANC-2", "FLOW-14")
@pytest.mark.parametrize("how", ["raises", "returns"])
async def test_a_step_that_catches_its_cancellation_frees_its_slot(app, how):
    async def stubborn():
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("interrupted") from None
            return "never mind"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("stubborn", stubborn)

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.cancel(run.id)
        await asyncio.sleep(60)
        assert worker.busy == 0


@pytest.mark.spec("FLOW-4")
async def test_the_end_of_a_sleep_beside_a_running_step_is_seen_without_wake_ups(store, world, monkeypatch):
    app, learnt = App(store, world=world), []
    monkeypatch.setattr(store, "listen", lambda *_: lambda: None)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch():
            await ctx.sleep(10)
            learnt.append(world.monotonic())

        await asyncio.gather(ctx.step("long", asyncio.sleep, 100), branch())

    async with app.worker(lease=300):
        run = await app.start(order)
        await run.result(200)
    assert 10 <= learnt[0] < 11


@pytest.mark.spec("LEASE-10")
async def test_a_worker_stops_even_if_an_execution_that_lost_its_run_does_not_end(app):
    executions = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executions.append(1)
        await ctx.step("first", lambda: 1)
        if len(executions) == 1:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(100_000)
        await ctx.step("long", asyncio.sleep, 1000)

    async with asyncio.timeout(300):
        async with app.worker(grace=1):
            run = await app.start(order)
            await asyncio.sleep(1)
            await app.rewind(run.id, "first")
            await asyncio.sleep(30)
            assert len(executions) == 2


@pytest.mark.spec("LEASE-6")
async def test_a_run_whose_commits_always_fail_does_not_loop_forever(store, world):
    """A release as of a lost claim would refund the attempt each time."""
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async def odd(call):
        raise ValueError("no store can keep this")

    app.store.always("commit", odd)
    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 600) == ("failed", "lease_expired")
        app.store.always("commit", None)


@pytest.mark.spec("LEASE-16")
async def test_a_worker_uses_the_given_poll_interval(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async with app.worker(poll=20, keeper=False):
        await asyncio.sleep(200)
    assert 10 <= app.store.calls["due"] < 30
