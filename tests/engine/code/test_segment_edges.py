"""Edge cases of segments, slots and waits: events and crashes at unfavourable moments."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Fatal, Status, StepFailed
from holdfast.testing.faulty import Faulty, delay
from tests.engine.kit import keys, process

MODES = pytest.mark.parametrize("mode", ["step", "segment"])


async def echo(value=None):
    return value


@MODES
@pytest.mark.spec("FLOW-2")
async def test_an_open_wait_receives_its_event_before_its_branch_has_run(app, mode):
    """The event may come with the commit of another branch, and stands before it.

    The code learns that order.
    """
    winners = []

    @app.workflow("shop.race.v1", checkpoint=mode)
    async def race(ctx):
        async def slow():
            await ctx.sleep(1, key="nap")
            await ctx.step("poke", app.emit, "x")
            return "slow"

        async def fast():
            await ctx.step("first", echo)
            await ctx.await_event("x", key="event")
            return "fast"

        branches = [asyncio.ensure_future(slow()), asyncio.ensure_future(fast())]
        done, _ = await asyncio.wait(branches, return_when=asyncio.FIRST_COMPLETED)
        winners.append(sorted(one.result() for one in done))
        await ctx.sleep(1, key="later")
        await asyncio.gather(*branches)

    async with app.worker():
        await (await app.start(race)).result(100)
    assert winners == [["fast"]] * 2


@pytest.mark.spec("FLOW-9", "FLOW-16")
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_transaction_that_fails_after_its_branch_left_lets_the_run_park(app):
    app.store = Faulty(app.store)
    app.store.plan("transact", 1, delay(1))

    def refuse(_connection):
        raise Fatal("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def impatient():
            try:
                async with asyncio.timeout(0.5):
                    await ctx.transaction(refuse)
            except (TimeoutError, StepFailed):
                return "gave up"

        return (await asyncio.gather(impatient(), ctx.sleep(5)))[0]

    async with app.worker():
        assert await (await app.start(order)).result(100) == "gave up"


@pytest.mark.spec("LEASE-6")
@MODES
async def test_a_crashed_run_counts_as_crashed_until_its_progress_is_committed(app, mode):
    @app.workflow("shop.order.v1", checkpoint=mode)
    async def order(ctx):
        await ctx.step("first", echo)
        await ctx.step("deadly", asyncio.sleep, 1000)

    runs = [await app.start(order) for _ in range(32)]
    for round_, held_max in enumerate((32, 32, 32, 1)):  # before its last crash a run is executed alone
        worker = await process(app, round_ + 1, slots=32, lease=3)
        await asyncio.sleep(2)
        held = [run for run in runs if (await app.get(run.id)).status is Status.LEASED]
        assert len(held) == held_max
        worker.kill()
        await asyncio.sleep(30)
        await app.store.tick()
        await asyncio.sleep(300)  # a run that crashed again waits for a while


@pytest.mark.spec("LEASE-6")
async def test_the_quota_of_crashed_runs_is_refilled_when_one_has_ended(app):
    """The slot is free when the end is sent. The quota of crashed runs is free a moment later."""

    @app.workflow("shop.order.v1")
    async def order(_ctx):
        await asyncio.sleep(0.01)

    runs = [await app.start(order) for _ in range(20)]
    killed = await process(app, 1, slots=20, lease=3)
    await asyncio.sleep(0.005)
    killed.kill()
    await asyncio.sleep(20)
    await app.store.tick()
    assert {(await app.get(run.id)).crashes for run in runs} == {1}
    begun = app.world.monotonic()
    async with app.worker(slots=8):
        for run in runs:
            await run.result(60)
    assert app.world.monotonic() - begun < 2


@pytest.mark.spec("OPS-3")
@MODES
async def test_hooks_learn_of_a_failed_step_when_it_is_committed(app, mode):
    notices = []
    app.on("step.failed")(lambda notice: notices.append(notice.step))

    async def broken():
        raise Fatal("no")

    @app.workflow("shop.order.v1", checkpoint=mode)
    async def order(ctx):
        try:
            await ctx.step("bad", broken)
        except StepFailed:
            await asyncio.sleep(ctx.attempt)

    async with app.worker():
        cancelled, run = await app.start(order), await app.start(order)
        await asyncio.sleep(0.5)
        await app.cancel(cancelled.id)
        assert len(notices) == (2 if mode == "step" else 0)
        await run.result(10)
        await asyncio.sleep(60)
    assert len(notices) == (2 if mode == "step" else 1)


@MODES
@pytest.mark.spec("FLOW-12")
async def test_a_finished_step_is_kept_when_its_run_is_released(app, mode):
    @app.workflow("shop.order.v1", checkpoint=mode)
    async def order(ctx):
        await ctx.step("pay", asyncio.sleep, 2)
        await ctx.step("ship", asyncio.sleep, 1000)

    run = await app.start(order)
    worker = app.worker(keeper=False, grace=0, lease=60)
    await worker.__aenter__()
    refresh = worker.leases.refresh

    async def slowly():
        await asyncio.sleep(0.5)
        await refresh()

    worker.leases.refresh = slowly
    await asyncio.sleep(2.2)
    await worker.stop()
    assert await keys(app, run) == ["pay"]


@pytest.mark.spec("FLOW-13")
async def test_a_step_that_failed_for_good_is_a_boundary_too(app):
    done = []

    async def broken():
        app.world.leap(0.01)
        raise Fatal("no")

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(1000):
            try:
                await ctx.step("bad", broken, key=f"bad:{n}")
            except StepFailed:
                done.append(n)

    run = await app.start(order)
    async with app.worker(lease=60):
        await asyncio.sleep(0.02)
        await app.cancel(run.id)
        await asyncio.sleep(5)
    assert len(done) < 300
