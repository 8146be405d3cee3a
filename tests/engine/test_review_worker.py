"""What a reviewer found: ways in which a worker could stand still, spin, or never stop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast import App, Backoff, Status
from holdfast.records import Answer, Verdict
from holdfast.stores.memory import MemoryStore
from holdfast.world import RealWorld
from tests.engine.faulty import Faulty, fail_before
from tests.engine.kit import outcome, trail


def real(scene):
    async def limited():
        async with asyncio.timeout(10):
            await scene()

    asyncio.run(limited())


async def test_a_claim_that_fails_in_an_unknown_way_is_tried_again(store, world):
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


async def test_a_renewal_that_fails_in_an_unknown_way_is_tried_again(store, world, monkeypatch):
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
async def test_a_worker_stops_though_the_store_is_gone(store, world):
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
async def test_a_row_that_someone_holds_is_tried_again_and_not_in_a_frenzy(store, world):
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


def test_a_plain_step_that_raises_stop_iteration_fails_and_does_not_hang():
    async def scene():
        app = App(MemoryStore())

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("empty", lambda: next(iter([])), retry=Backoff.none())

        async with app.worker(grace=0):
            run = await app.start(order)
            assert await outcome(app, run, 5) == ("failed", "exhausted")

    real(scene)


@pytest.mark.spec("RETRY-6")
def test_a_step_that_waits_for_a_thread_is_not_timed_out_before_it_began():
    async def scene():
        app = App(MemoryStore(), world=RealWorld(threads=1))

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("nap", time.sleep, 0.2, timeout=0.5, retry=Backoff.none())

        async with app.worker(grace=0):
            runs = [await app.start(order) for _ in range(5)]
            for run in runs:
                assert await outcome(app, run, 5) == ("succeeded", None)

    real(scene)


@pytest.mark.spec("LEASE-10")
def test_a_worker_stops_though_all_threads_are_held_by_functions_that_do_not_return():
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
    real(scene)
    assert time.monotonic() - begun < 5


@pytest.mark.spec("RETRY-6")
def test_a_plain_function_past_its_timeout_can_tell():
    told = []

    async def scene():
        app = App(MemoryStore())

        @app.workflow("shop.order.v1")
        async def order(ctx):
            def slow():
                for _ in range(100):
                    time.sleep(0.02)
                    if ctx.cancelled:
                        told.append(1)
                        return

            await ctx.step("slow", slow, timeout=0.2, retry=Backoff.none())

        async with app.worker(grace=0):
            run = await app.start(order)
            assert await outcome(app, run, 5) == ("failed", "timeout")
        await asyncio.sleep(0.1)

    real(scene)
    assert told == [1]


@pytest.mark.spec("CANC-2", "FLOW-14")
@pytest.mark.parametrize("how", ["raises", "returns"])
async def test_a_step_that_answers_a_cancel_with_an_end_of_its_own_does_not_hold_its_slot(app, how):
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
async def test_a_sleep_beside_a_running_step_is_learnt_without_hints(store, world, monkeypatch):
    app, learnt = App(store, world=world), []
    monkeypatch.setattr(store, "listen", lambda _: lambda: None)

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
async def test_a_worker_stops_though_an_execution_that_lost_its_run_does_not_end(app):
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
async def test_a_run_whose_commits_cannot_be_made_does_not_go_round_for_ever(store, world):
    """Given back as if its claim had been lost, it would be refunded each time."""
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
async def test_a_worker_told_to_poll_seldom_does(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async with app.worker(poll=20, keeper=False):
        await asyncio.sleep(200)
    assert 10 <= app.store.calls["claim"] < 30
