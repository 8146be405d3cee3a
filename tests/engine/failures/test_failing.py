"""Failures: their record, and the next move of the run."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, Fatal, RunFailed, Status, StepFailed, Unavailable
from tests.engine.kit import keys, outcome, trail, until


def broken(*_):
    raise ValueError("no such card")


@pytest.mark.spec("FLOW-10", "RETRY-7")
async def test_type_message_and_traceback_of_an_exception_are_stored(app):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        broken()

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(RunFailed, match="no such card"):
            await run.result(60)
    found = await app.get(run.id)
    assert (found.error.kind, found.error.type, found.error.message) == (
        "exhausted",
        "ValueError",
        "no such card",
    )
    assert "in broken" in found.error.traceback
    assert "no such card" in found.last_error


@pytest.mark.spec("FLOW-10", "RETRY-4")
async def test_fatal_is_not_retried_in_the_body_nor_in_a_step(app):
    tries = []

    def refuse():
        tries.append(1)
        raise Fatal("never")

    @app.workflow("shop.body.v1")
    async def body(ctx):
        refuse()

    @app.workflow("shop.step.v1")
    async def step(ctx):
        await ctx.step("refuse", refuse)

    async with app.worker():
        for workflow in (body, step):
            assert await outcome(app, await app.start(workflow)) == ("failed", "fatal")
    assert len(tries) == 2


@pytest.mark.spec("RETRY-4")
async def test_listed_exception_types_are_not_retried(app):
    tries = []

    def refuse():
        tries.append(1)
        raise LookupError("gone") if len(tries) % 2 else KeyError("a kind of it")

    @app.workflow("shop.body.v1", retry=Backoff.fixed(0, fatal=(LookupError,)))
    async def body(ctx):
        refuse()

    @app.workflow("shop.step.v1")
    async def step(ctx):
        await ctx.step("refuse", refuse, retry=Backoff.fixed(0, fatal=(LookupError,)))

    async with app.worker():
        for workflow in (body, step):
            assert await outcome(app, await app.start(workflow)) == ("failed", "fatal")
    assert len(tries) == 2


@pytest.mark.spec("FLOW-19")
async def test_a_failed_step_raises_step_failed_now_and_later_without_running(app):
    tries, caught = [], []

    def bad():
        tries.append(1)
        raise ValueError("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("bad", bad, retry=Backoff.fixed(0, attempts=2))
        except StepFailed as error:
            caught.append((error.step, error.kind, error.type, error.message, str(error)))
        await ctx.sleep(10)
        return "went on"

    async with app.worker():
        assert await (await app.start(order)).result(60) == "went on"
    assert len(tries) == 2
    assert caught == [("bad", "exhausted", "ValueError", "no", "step 'bad' failed: ValueError: no")] * 2


@pytest.mark.spec("FLOW-19", "RETRY-7")
async def test_a_failed_step_that_nobody_catches_fails_the_run_at_once_with_its_kind(app):
    executions = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executions.append(1)
        await ctx.step("bad", broken, retry=Backoff.none())

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
    found = await app.get(run.id)
    assert (len(executions), found.error.step, found.error.type) == (1, "bad", "StepFailed")
    assert (await trail(app, run))[-2:] == ["step_failed", "failed"]


@pytest.mark.spec("FLOW-17", "RETRY-7")
@pytest.mark.parametrize(
    "value", [float("nan"), object(), {1: 2}, "nul\0", b"raw", {"deep": [1, {"x": {1, 2}}]}]
)
async def test_a_result_that_cannot_be_encoded_fails_the_step_naming_it_and_is_not_retried(app, value):
    tries = []

    def make():
        tries.append(1)
        return value

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("make", make)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")
    assert len(tries) == 1
    assert "the result of step 'make'" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-17")
async def test_a_result_of_the_wrong_shape_fails_the_step_naming_it(app):
    def count() -> int:
        return "three"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("count", count)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")
    assert "the result of step 'count' does not match its annotation" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-17")
async def test_a_workflow_result_that_cannot_be_encoded_fails_the_run_at_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return {"bad": object()}

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")
    assert ".bad" in (await app.get(run.id)).error.message


async def test_an_error_that_cannot_be_printed_or_stored_is_still_recorded(app):
    class Nasty(Exception):
        def __str__(self):
            raise RuntimeError("not even that")

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, which: str):
        raise Nasty if which == "mute" else ValueError("nul \0 and half \ud800 a pair" + "x" * 100_000)

    async with app.worker():
        for which in ("mute", "odd"):
            assert await outcome(app, await app.start(order, which)) == ("failed", "exhausted")


async def test_a_group_of_errors_and_a_system_exit_are_failed_tries(app):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, which: str):
        raise SystemExit(3) if which == "exit" else ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    async with app.worker():
        for which in ("exit", "group"):
            assert await outcome(app, await app.start(order, which)) == ("failed", "exhausted")


async def test_params_of_another_shape_than_the_code_wants_fail_the_run_and_not_the_worker(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        return n

    await app.store.open()
    run = await app.start("shop.order.v1", 1)
    other = await app.start(order, 2)
    assert run.id != other.id
    newer = type(app)(app.store, world=app.world)

    @newer.workflow("shop.order.v1")
    async def changed(ctx, n: list[str]):
        return n

    async with newer.worker():
        assert await outcome(app, run) == ("failed", "encoding")


async def test_a_recorded_result_of_another_shape_than_the_code_now_wants_fails_clearly(app):
    def one() -> int:
        return 1

    def two() -> list[str]:
        return []

    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        tries.append(1)
        await ctx.step("count", one if len(tries) == 1 else two)
        await ctx.sleep(1)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "encoding")
    assert "the recorded result of step 'count'" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-19", "REW-2")
async def test_retry_of_a_failed_run_goes_on_at_the_failed_step_with_fresh_attempts(app):
    called, mended = [], []

    def charge():
        called.append("charge")
        return 1

    def ship():
        called.append("ship")
        if not mended:
            raise ValueError("no courier")
        return 2

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [
            await ctx.step("charge", charge),
            await ctx.step("ship", ship, retry=Backoff.fixed(0, attempts=2)),
        ]

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
        assert called == ["charge", "ship", "ship"]
        mended.append(1)
        await app.retry(run.id, by="ann")
        assert await run.result(60) == [1, 2]
    assert called == ["charge", "ship", "ship", "ship"]


@pytest.mark.spec("REW-2")
async def test_retry_of_a_run_that_timed_out_waits_anew(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.await_event("parcel", timeout=60)).payload

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "timeout")
        await app.retry(run.id)
        await until(app, run, Status.WAITING)
        await app.emit("parcel", "second chance")
        assert await run.result(60) == "second chance"


@pytest.mark.spec("REW-1")
async def test_rewind_forgets_that_step_and_all_later_ones_and_runs_them_again(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for name in "abc":
            await ctx.step(name, called.append, name)
        return (await ctx.await_event("parcel")).payload

    async with app.worker():
        run = await app.start(order)
        await app.emit("parcel", 1)
        assert await run.result(60) == 1
        await app.rewind(run.id, "b", by="ann")
        assert await run.result(60) == 1
    assert called == ["a", "b", "c", "b", "c"]
    assert await keys(app, run) == ["a", "b", "c", "event:parcel"]


@pytest.mark.spec("REW-1")
async def test_rewind_fences_off_the_worker_that_still_executes_the_run(app):
    called = []

    async def slow():
        called.append("slow")
        await asyncio.sleep(20)
        return len(called)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1)
        return await ctx.step("slow", slow)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.rewind(run.id, "a")
        assert await run.result(60) == 2
    assert called == ["slow", "slow"]


async def test_a_store_that_cannot_be_reached_in_user_code_is_an_error_like_any_other(app):
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("elsewhere")

    async with app.worker():
        await (await app.start(order)).result(60)
    assert len(tries) == 2
