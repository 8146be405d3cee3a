"""Unwinding of code: parking, swallowed signals, cleanup and cancellation."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

from holdfast import Status
from tests.engine.kit import keys, outcome, until


@pytest.mark.spec("FLOW-8")
async def test_except_exception_does_not_swallow_parking(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.sleep(60)
        except Exception:  # noqa: BLE001
            return "swallowed"
        return "slept"

    async with app.worker():
        assert await (await app.start(order)).result(120) == "slept"


@pytest.mark.spec("FLOW-8")
@pytest.mark.parametrize("then", ["returns", "does not end", "raises"])
async def test_code_that_swallows_the_parking_signal_fails_with_a_clear_error(app, then):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.sleep(60)
        except BaseException as signal:
            if then == "does not end":
                await asyncio.sleep(10**6)
            if then == "raises":
                raise ValueError("instead") from signal
        return "swallowed"

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 30) == ("failed", "usage")
    assert "caught the signal that parks it" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-8")
async def test_a_swallowed_signal_is_raised_again_at_the_next_call(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.sleep(60)
        except BaseException:  # noqa: BLE001
            await ctx.step("work", lambda: called.append(1))
        return "slept"

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        assert await run.result(120) == "slept"
    assert called == []


@pytest.mark.slow
@pytest.mark.spec("FLOW-8")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_code_that_swallows_every_signal_in_a_loop_does_not_stop_the_worker(app):
    @app.workflow("shop.bad.v1")
    async def bad(ctx):
        while True:
            with suppress(BaseException):
                await ctx.sleep(60)

    @app.workflow("shop.good.v1")
    async def good(ctx):
        return "fine"

    async with app.worker():
        run = await app.start(bad)
        await asyncio.sleep(1)
        assert await (await app.start(good)).result(5) == "fine"
        assert await outcome(app, run, 30) == ("failed", "usage")
    # Objects left by such code complain when they are collected: collect them now, not in the next test.
    del bad, app.workflows["shop.bad.v1"]
    gc.collect()


@pytest.mark.spec("FLOW-8")
async def test_cleanup_around_a_wait_runs_no_step_when_the_run_only_parks(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.sleep(60)
        finally:
            await ctx.step("cleanup", lambda: called.append("cleanup"))
        return "done"

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        assert (called, await keys(app, run)) == ([], ["sleep"])
        assert await run.result(120) == "done"
    assert called == ["cleanup"]


@pytest.mark.spec("FLOW-8", "FLOW-9")
async def test_cleanup_in_a_branch_runs_no_step_when_the_run_only_parks(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch():
            try:
                await ctx.await_event("parcel")
            finally:
                await ctx.step("cleanup", lambda: called.append("cleanup"))

        await asyncio.gather(branch(), ctx.sleep(60))
        return "done"

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        assert called == []
        await app.emit("parcel")
        assert await run.result(120) == "done"
    assert called == ["cleanup"]


@pytest.mark.spec("FLOW-10")
async def test_a_cancelled_error_without_a_request_is_a_failed_try(app):
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        tries.append(1)
        if len(tries) == 1:
            raise asyncio.CancelledError("a library leaked it")
        return "second"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "second"
    assert len(tries) == 2


@pytest.mark.spec("FLOW-10")
async def test_a_cancelled_error_out_of_a_step_is_a_failed_try_of_the_step(app):
    tries = []

    async def leaky():
        tries.append(1)
        if len(tries) == 1:
            raise asyncio.CancelledError
        return "second"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("leaky", leaky)

    async with app.worker():
        assert await (await app.start(order)).result(60) == "second"


@pytest.mark.spec("FLOW-14", "CANC-2")
async def test_a_cancelled_run_gets_cancelled_error_in_its_step_and_can_clean_up(app):
    told = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def long():
            try:
                await asyncio.sleep(10**6)
            except asyncio.CancelledError:
                told.append(("step", ctx.cancelled))
                await asyncio.sleep(1)
                told.append("cleaned up")
                raise

        assert not ctx.cancelled
        await ctx.step("long", long)

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.cancel(run.id)
        await asyncio.sleep(13)
        assert told == [("step", True), "cleaned up"]
        assert worker.busy == 0
    assert (await app.get(run.id)).status is Status.CANCELLED
    assert await keys(app, run) == []


@pytest.mark.spec("CANC-2", "FLOW-14")
async def test_writes_in_the_cleanup_of_a_cancelled_run_change_nothing_and_do_not_hang(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("long", asyncio.sleep, 10**6)
        finally:
            await ctx.step("refund", lambda: called.append("refund"))

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.cancel(run.id)
        await asyncio.sleep(12)
        assert worker.busy == 0
    assert called == []
    assert await keys(app, run) == []


@pytest.mark.spec("CANC-2")
async def test_a_cancelled_run_is_interrupted_at_its_next_boundary(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(100):
            called.append(n)
            await ctx.step("nap", asyncio.sleep, 1)

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(2.5)
        await app.cancel(run.id)
        await asyncio.sleep(1)
        assert worker.busy == 0
    assert called == [0, 1, 2]
    assert (await app.get(run.id)).status is Status.CANCELLED
    assert len(await keys(app, run)) == 2


@pytest.mark.spec("FLOW-14")
async def test_a_sync_function_can_ask_whether_it_is_cancelled(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def long():
            while not ctx.cancelled:
                await asyncio.shield(asyncio.sleep(1))
            seen.append("told")

        try:
            await ctx.step("long", long)
        finally:
            seen.append(ctx.cancelled)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(3)
        await app.cancel(run.id)
        await asyncio.sleep(15)
    assert seen[-1] is True


@pytest.mark.spec("CANC-2")
async def test_a_run_that_ignores_its_cancellation_does_not_block_the_worker_forever(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)

    async with asyncio.timeout(100):
        async with app.worker(grace=1):
            run = await app.start(order)
            await asyncio.sleep(3)
            await app.cancel(run.id)
            await asyncio.sleep(15)
    assert (await app.get(run.id)).status is Status.CANCELLED


@pytest.mark.spec("FLOW-8", "FLOW-18")
async def test_emits_and_logs_during_unwinding_are_not_recorded_yet(app):
    """An emit, a log or a time in a `finally` around a wait belongs to the end of the wait."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.sleep(60)
        finally:
            ctx.log("over")
            ctx.emit("over", str(ctx.now()))

    @app.workflow("shop.other.v1")
    async def other(ctx):
        return (await ctx.await_event("over")).payload

    async with app.worker():
        watcher, run = await app.start(other), await app.start(order)
        await until(app, run, Status.WAITING)
        assert [entry.type for entry in await app.trail(run.id) if entry.type == "log"] == []
        assert "00:01:00" in await watcher.result(120)
        await run.result(10)
    assert [entry.data["message"] for entry in await app.trail(run.id) if entry.type == "log"] == ["over"]


@pytest.mark.spec("CANC-2", "PAUSE-1")
@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_code_that_catches_every_cancel_is_abandoned_and_its_slot_is_freed(app, verb):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("first", asyncio.sleep, 1)
        while True:
            with suppress(BaseException):
                await ctx.step("again", asyncio.sleep, 1)

    async with app.worker(slots=1) as worker:
        run = await app.start(order)
        await asyncio.sleep(0.5)
        await getattr(app, verb)(run.id)
        await asyncio.sleep(100)
        assert worker.busy == 0


@pytest.mark.spec("FLOW-21")
async def test_a_continue_as_that_the_code_swallows_fails_the_run(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        with suppress(BaseException):
            ctx.continue_as(n + 1)
        return "went on"

    async with app.worker():
        assert await outcome(app, await app.start(order, 1)) == ("failed", "usage")
