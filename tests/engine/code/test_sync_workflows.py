"""Sync workflows: the same context in blocking form, with the same record, parking and replay."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections import Counter
from datetime import timedelta

import pytest

import holdfast as hf
from holdfast import App, Backoff, Context, EventTimeout, Fatal, Status, StepFailed, UsageError
from holdfast.engine.code.sync_context import SyncContext
from holdfast.testing import VirtualWorld, play
from tests.engine.conftest import MAKERS
from tests.engine.kit import keys, outcome, trail, until

LEASE = 6


async def fetched(value):
    await asyncio.sleep(1)
    return value


async def test_sync_context_has_the_names_of_the_async_context(app):
    """Every public name of one context exists in the other, with the same docstring and parameters."""
    names = [name for name in dir(Context) if not name.startswith("_")]
    assert names == [name for name in dir(SyncContext) if not name.startswith("_")]
    for name in names:
        there, here = inspect.getattr_static(Context, name), inspect.getattr_static(SyncContext, name)
        assert inspect.getdoc(here) == inspect.getdoc(there), name
        if inspect.isfunction(there):
            mine, other = inspect.signature(here).parameters, inspect.signature(there).parameters
            assert list(mine) == list(other), name


@pytest.mark.spec("FLOW-15")
async def test_a_sync_workflow_blocks_where_an_async_workflow_awaits(app, world):
    """Sync and async steps, map, sleeps, events, time and random numbers all return their values."""

    @app.workflow("shop.order.v1")
    def order(ctx, amount: int) -> list:
        begun = ctx.now()
        charged = ctx.step("charge", lambda: amount + 1)
        mail = ctx.step("mail", fetched, "sent")
        ctx.sleep(hours=1)
        ctx.sleep_until(begun + timedelta(hours=2))
        event = ctx.await_event("paid")
        sizes = ctx.map("size", len, ["a", "bb"])
        waited = ctx.now() - begun
        return [charged, mail, event.payload, sizes, waited >= timedelta(hours=2), 0 <= ctx.random() < 1]

    run = await app.start(order, 41)
    async with app.worker() as worker:
        await until(app, run, Status.WAITING)
        assert worker.busy == 0
        await app.emit("paid", "in full")
        world.leap(hf.hours(1))
        await asyncio.sleep(2)
        world.leap(hf.hours(1))
        assert await run.result(60) == [42, "sent", "in full", [1, 2], True, True]
    assert world.monotonic() >= 7200
    found = await keys(app, run)
    assert found == ["now", "charge", "mail", "sleep", "sleep#2", "event:paid", "size[0]", "size[1]", "now#2"]


@pytest.mark.spec("FLOW-15", "FLOW-4")
async def test_a_parked_sync_run_holds_no_thread_and_replays_its_record(app, world):
    """The function has left its thread: its `finally` has run, while the run still sleeps."""
    ran = Counter()

    @app.workflow("shop.order.v1")
    def order(ctx):
        ran["body"] += 1
        first = ctx.step("first", lambda: ran.update(["first"]) or ctx.random())
        drawn = ctx.random(), ctx.uuid(), ctx.now()
        ctx.log("drawn")
        ctx.emit("told", first)
        try:
            ctx.sleep(hf.days(30))
        finally:
            ran["unwound"] += 1
        return [first, str(drawn)]

    run = await app.start(order)
    async with app.worker() as worker:
        await until(app, run, Status.WAITING)
        assert (worker.busy, ran["unwound"]) == (0, 1)
        steps = await app.steps(run.id)
        world.leap(hf.days(30))
        first = await run.result(60)
    assert ran == {"body": 2, "first": 1, "unwound": 2}
    assert str(first[0]) == steps[0].output
    assert (await trail(app, run)).count("log") == 1
    assert (await keys(app, run)).count("emit:told") == 1


@pytest.mark.spec("FLOW-15", "FLOW-8")
@pytest.mark.parametrize("asks_again", [False, True])
async def test_sync_code_that_swallows_the_parking_signal_fails(app, asks_again):
    @app.workflow("shop.order.v1")
    def order(ctx):
        while True:
            try:
                ctx.sleep(10)
            except BaseException:  # noqa: BLE001 - the offence that this test is about
                if not asks_again:
                    return "done"

    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run, 100) == ("failed", "usage")
    assert "caught the signal that parks it" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-15", "FLOW-19")
async def test_errors_of_steps_and_waits_are_raised_in_the_thread(app):
    seen = []

    @app.workflow("shop.order.v1")
    def order(ctx):
        try:
            ctx.step("bad", lambda: 1 / 0, retry=Backoff.fixed(5, attempts=2))
        except StepFailed as error:
            seen.append(error.step)
        try:
            ctx.await_event("never", timeout=60)
        except EventTimeout as error:
            seen.append(error.topic)
        return "done"

    run = await app.start(order)
    async with app.worker():
        assert await run.result(300) == "done"
    assert seen == ["bad", "bad", "never"]


@pytest.mark.spec("FLOW-15", "FLOW-10")
async def test_an_exception_out_of_sync_code_retries_or_fails_the_run(app):
    tried = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(10, attempts=3))
    def order(ctx):
        tried.append(ctx.attempt)
        if len(tried) < 3:
            raise OSError("not yet")
        raise Fatal("never")

    @app.workflow("shop.empty.v1", retry=Backoff.none())
    def empty(ctx):
        return next(iter([]))

    run, other = await app.start(order), await app.start(empty)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "fatal")
        assert await outcome(app, other) == ("failed", "exhausted")
    assert tried == [1, 2, 3]
    assert "test_sync_workflows.py" in (await app.get(run.id)).error.traceback


@pytest.mark.spec("FLOW-15", "FLOW-21")
async def test_a_sync_run_can_continue_as_another(app):
    @app.workflow("shop.count.v1")
    def count(ctx, n: int):
        ctx.progress(n, 3)
        if n < 3:
            ctx.continue_as(n + 1)
        return n

    run = await app.start(count, 1)
    async with app.worker():
        assert await app.result(run.id, 10) == 3
    assert len(await app.list()) == 3


@pytest.mark.spec("FLOW-15", "PAUSE-1")
async def test_a_sync_run_pauses_at_its_next_boundary_and_continues_when_resumed(app):
    ran = Counter()

    @app.workflow("shop.order.v1")
    def order(ctx):
        for name in ("a", "b"):
            ctx.step(name, lambda name=name: ran.update([name]))
            ctx.step(f"nap-{name}", asyncio.sleep, 10)
        return "done"

    run = await app.start(order)
    async with app.worker() as worker:
        await asyncio.sleep(5)
        await app.pause(run.id)
        await until(app, run, Status.PAUSED)
        assert worker.busy == 0
        await app.resume(run.id)
        assert await run.result(100) == "done"
    assert ran == {"a": 1, "b": 1}


@pytest.mark.spec("FLOW-14", "FLOW-15")
async def test_a_cancelled_sync_run_is_interrupted_where_it_waits_and_can_clean_up(app):
    told = []

    @app.workflow("shop.order.v1")
    def order(ctx):
        try:
            ctx.step("long", asyncio.sleep, 10**6)
        except asyncio.CancelledError:
            told.append(ctx.cancelled)
            raise

    run = await app.start(order)
    async with app.worker(lease=LEASE) as worker:
        await asyncio.sleep(1)
        await app.cancel(run.id)
        await asyncio.sleep(LEASE)
        assert (worker.busy, worker.stragglers) == (0, 0)
    assert told == [True]
    assert (await app.get(run.id)).status is Status.CANCELLED


@pytest.mark.spec("FLOW-2")
async def test_another_kind_of_step_under_a_recorded_key_is_drift_in_sync_code_too(app):
    rewritten = []

    @app.workflow("shop.order.v1")
    def order(ctx):
        if rewritten:
            ctx.sleep(1, key="a")
        ctx.step("a", lambda: rewritten.append(1))
        ctx.sleep(5)

    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "drift")


async def test_a_step_inside_a_step_is_refused(app):
    @app.workflow("shop.order.v1")
    def order(ctx):
        async def inner():
            ctx.log("fine")
            ctx.cost(1)
            ctx.step("b", lambda: 1)

        ctx.step("a", inner)

    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "usage")
    assert "'step' is asked for inside step 'a'" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-15")
async def test_the_context_works_only_in_the_thread_of_the_workflow(app):
    """From another thread the order of calls, and with it the keys, would depend on timing."""
    refused = []

    @app.workflow("shop.order.v1")
    def order(ctx):
        def other():
            for call in (functools.partial(ctx.step, "a", list), ctx.now, ctx.random):
                try:
                    call()
                except UsageError as error:
                    refused.append(str(error))
            refused.append(ctx.cancelled)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return ctx.step("b", lambda: "fine")

    run = await app.start(order)
    async with app.worker():
        assert await run.result(10) == "fine"
    assert ["own thread" in str(one) for one in refused] == [True] * 3 + [False]


@pytest.mark.spec("FLOW-9", "FLOW-15")
async def test_items_left_by_a_failed_map_do_not_park_the_run_while_the_function_runs(app):
    """One item fails for good while its neighbour backs off. The function catches the error and continues."""

    @app.workflow("shop.order.v1")
    def order(ctx):
        def picky(item):
            raise (Fatal if item else OSError)("no")

        try:
            ctx.map("pick", picky, [0, 1], retry=Backoff.fixed(30, attempts=2))
        except StepFailed:
            return ctx.step("after", lambda: "went on")

    run = await app.start(order)
    async with app.worker():
        assert await run.result(100) == "went on"


def test_a_function_that_cannot_be_a_workflow_is_refused_at_definition():
    app = App("memory://")

    def yields(ctx):
        yield 1

    async def yields_too(ctx):
        yield 1

    for wrong in (yields, yields_too):
        with pytest.raises(UsageError, match="generator"):
            app.workflow("shop.order.v1")(wrong)
    with pytest.raises(UsageError, match="sync or async"):
        app.workflow("shop.order.v1")(lambda: 1)


async def test_a_decorator_that_hides_an_async_function_is_reported(app):
    async def order(ctx):
        return 1

    app.workflow("shop.order.v1")(lambda ctx: order(ctx))
    run = await app.start("shop.order.v1")
    async with app.worker():
        assert await outcome(app, run) == ("failed", "usage")
    assert "returns a coroutine" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-15")
def test_a_play_with_sync_workflows_is_the_same_every_time():
    """The loop stands still while sync code runs: a seed repeats the order of everything."""

    def scene():
        async def playing():
            world = VirtualWorld(5)
            app = App(MAKERS["memory"](world.now), world=world)

            @app.workflow("shop.order.v1", retry=Backoff.exponential(base=1, jitter=0.5, attempts=5))
            def order(ctx, n: int):
                ctx.step("a", asyncio.sleep, ctx.random())
                ctx.sleep(ctx.random() * 10)
                if ctx.attempt < 2 and n % 3 == 0:
                    raise OSError
                return str(ctx.uuid())

            runs = [await app.start(order, n) for n in range(20)]
            async with app.worker(slots=5):
                for run in runs:
                    await run.result(1000)
            return [(one.run, one.type, one.at) for one in await app.trail(limit=1000)]

        return playing()

    assert play(scene) == play(scene)
