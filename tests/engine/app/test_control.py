"""Pause, resume and cancel, also of runs that a worker is executing."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import IllegalMove, RunCancelled, Status
from tests.engine.kit import keys, process, trail, until


@pytest.mark.spec("PAUSE-1")
async def test_a_leased_run_pauses_at_its_next_boundary_and_keeps_the_finished_step(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for name in "abc":
            await ctx.step(name, asyncio.sleep, 10)
            called.append(name)
        return "done"

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(15)
        asked = await app.pause(run.id, by="ann")
        assert (asked.status, asked.pause_asked_by) == (Status.LEASED, "ann")
        await asyncio.sleep(10)
        assert (await app.get(run.id)).status is Status.PAUSED
        assert (worker.busy, await keys(app, run)) == (0, ["a", "b"])
        await asyncio.sleep(100)
        assert (await app.get(run.id)).status is Status.PAUSED
        await app.resume(run.id)
        assert await run.result(60) == "done"
    assert called == ["a", "a", "b", "c"]
    assert (await trail(app, run)).count("step_succeeded") == 3


@pytest.mark.spec("PAUSE-1")
async def test_a_waiting_and_a_pending_run_pause_at_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)
        return "done"

    async with app.worker():
        run, later = await app.start(order), await app.start(order, delay=60)
        await until(app, run, Status.WAITING)
        for one in (run, later):
            assert (await app.pause(one.id)).status is Status.PAUSED


@pytest.mark.spec("PAUSE-2")
async def test_timers_run_and_events_arrive_while_a_run_is_paused(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        _, event = await asyncio.gather(ctx.sleep(60), ctx.await_event("parcel"))
        return event.payload

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.pause(run.id)
        await asyncio.sleep(100)
        assert (await app.emit("parcel", "kept")).woken == 0
        await asyncio.sleep(100)
        assert (await app.get(run.id)).status is Status.PAUSED
        await app.resume(run.id)
        assert await run.result(1) == "kept"


@pytest.mark.spec("PAUSE-2")
async def test_a_run_resumed_before_its_timer_continues_to_wait(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.pause(run.id)
        await asyncio.sleep(20)
        assert (await app.resume(run.id)).status is Status.WAITING
        await run.result(60)
    assert 60 <= world.monotonic() < 62


@pytest.mark.spec("PAUSE-2", "PAUSE-3")
async def test_resume_withdraws_a_pause_request_that_has_not_taken_effect(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", asyncio.sleep, 10)
        return "done"

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.pause(run.id)
        assert (await app.resume(run.id)).pause_asked_by is None
        assert await run.result(60) == "done"
        with pytest.raises(IllegalMove, match="succeeded"):
            await app.resume(run.id)
    assert "paused" not in await trail(app, run)


@pytest.mark.spec("PAUSE-3")
@pytest.mark.parametrize("leaving", ["park", "retry", "release", "expire"])
async def test_a_pause_request_is_kept_however_the_run_leaves_its_worker(app, leaving):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(5)
        if leaving == "park":
            await ctx.sleep(60)
        if leaving == "retry":
            raise ValueError("once more")
        await asyncio.sleep(1000)

    run = await app.start(order)
    doomed = await process(app, 1, grace=10)
    await asyncio.sleep(1)
    await app.pause(run.id)
    if leaving == "expire":
        doomed.kill()
        await asyncio.sleep(40)
        await app.store.tick()
    elif leaving == "release":
        await doomed.worker.stop(grace=1)
    found = await until(app, run, Status.PAUSED, within=20)
    assert found.leased_by is None
    doomed.kill()


@pytest.mark.spec("PAUSE-3")
@pytest.mark.parametrize("ending", ["complete", "fail"])
async def test_the_end_of_a_run_wins_over_a_pause_request(app, ending):
    from holdfast import Fatal

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(5)
        if ending == "fail":
            raise Fatal("no")

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.pause(run.id)
        found = await app.final(run.id, 20)
    assert found.status is (Status.SUCCEEDED if ending == "complete" else Status.FAILED)


@pytest.mark.spec("PAUSE-3")
async def test_pausing_a_paused_run_changes_nothing(app):
    run = await app.start("shop.order.v1")
    await app.pause(run.id, by="ann")
    before = await trail(app, run)
    assert (await app.pause(run.id, by="bob")).status is Status.PAUSED
    assert await trail(app, run) == before


@pytest.mark.spec("CANC-1", "CANC-2")
async def test_a_waiting_run_is_cancelled_with_its_waits(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1)
        await asyncio.gather(ctx.sleep(60), ctx.await_event("parcel"))

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.cancel(run.id, by="ann")
        with pytest.raises(RunCancelled):
            await run.result(1)
        await asyncio.sleep(100)
        assert (await app.emit("parcel")).woken == 0
    assert {step.key: str(step.status) for step in await app.steps(run.id)} == {
        "a": "succeeded", "sleep": "cancelled", "event:parcel": "cancelled",
    }  # fmt: skip


@pytest.mark.spec("CANC-2")
async def test_a_commit_in_flight_when_the_run_is_cancelled_changes_nothing(app):
    from holdfast.testing.faulty import Faulty, delay

    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1)

    store.plan("commit", 1, delay(5))
    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.cancel(run.id)
        await asyncio.sleep(10)
        assert worker.busy == 0
    assert (await app.get(run.id)).status is Status.CANCELLED
    assert await keys(app, run) == []
    assert "step_succeeded" not in await trail(app, run)
