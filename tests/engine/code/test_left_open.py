"""Tasks that a body begins and does not await fail the run by name, so that no call is lost silently."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status
from tests.engine.kit import keys, until

OPEN = "was begun in a task that is still open at the end of the workflow"


async def wrapped(call):
    return await call()


def calls(ctx, child):
    return {
        "late": lambda: ctx.step("late", asyncio.sleep, 5),
        "sleep": lambda: ctx.sleep(50),
        "event:never": lambda: ctx.await_event("never"),
        "gate": lambda: ctx.approval("gate"),
        "shop.child": lambda: ctx.call(child),
        "started": lambda: ctx.start(child, key="started"),
        "many": lambda: ctx.map("many", asyncio.sleep, [5]),
    }


async def assert_left_open(app, body, wanted):
    app.workflow("shop.order.v1")(body)
    async with app.worker():
        run = await app.start("shop.order.v1")
        found = await until(app, run)
    assert (found.status, found.error.kind) == (Status.FAILED, "usage"), found.result
    assert wanted in found.error.message
    assert OPEN in found.error.message
    return run


@pytest.mark.spec("FLOW-26")
@pytest.mark.parametrize("name", ["late", "sleep", "event:never", "gate", "shop.child", "started", "many"])
@pytest.mark.parametrize("begins", ["not begun", "in a coroutine", "begun"])
async def test_a_call_in_a_task_that_is_left_open_fails_the_run_by_name(app, name, begins):
    @app.workflow("shop.child.v1")
    async def child(ctx):
        await ctx.sleep(1)

    kept = []

    async def order(ctx):
        call = calls(ctx, child)[name]
        kept.append(asyncio.ensure_future(call() if begins == "not begun" else wrapped(call)))
        if begins == "begun":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return "done"

    await assert_left_open(app, order, f"'{name}")


@pytest.mark.spec("FLOW-26")
async def test_a_running_step_that_is_left_open_is_named_and_stopped(app):
    stopped = []

    async def long():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append(1)
            raise

    async def order(ctx):
        task = asyncio.create_task(ctx.step("long", long))
        await ctx.step("short", asyncio.sleep, 1)
        return task is None

    run = await assert_left_open(app, order, "'long'")
    assert stopped == [1]
    assert await keys(app, run) == ["short"]


@pytest.mark.spec("FLOW-26")
async def test_a_call_left_open_fails_a_later_execution_too(app):
    async def order(ctx):
        late = asyncio.create_task(ctx.step("late", asyncio.sleep, 100))
        await ctx.sleep(50)
        return late is None

    await assert_left_open(app, order, "'late'")


@pytest.mark.spec("FLOW-26")
async def test_continue_as_with_an_open_task_fails_the_run(app):
    async def order(ctx):
        task = asyncio.create_task(ctx.step("late", asyncio.sleep, 100))
        await ctx.sleep(1)
        assert not task.done()
        ctx.continue_as()

    await assert_left_open(app, order, "'late'")


@pytest.mark.spec("FLOW-26")
@pytest.mark.parametrize("how", ["cancelled", "awaited", "done by itself", "in a group", "late to hear"])
async def test_cancelled_and_finished_tasks_do_not_fail_the_run(app, how):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        if how == "in a group":
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("a", asyncio.sleep, 5))
            return "done"
        if how == "late to hear":

            async def inner():
                async with asyncio.TaskGroup() as group:
                    group.create_task(ctx.sleep(500))

            outer = asyncio.create_task(inner())
            await ctx.step("b", asyncio.sleep, 1)
            outer.cancel()
            return "done"
        task = asyncio.create_task(ctx.step("a", asyncio.sleep, 5))
        await ctx.step("b", asyncio.sleep, 9 if how == "done by itself" else 1)
        if how == "cancelled":
            task.cancel()
        elif how == "awaited":
            await task
        return "done"

    async with app.worker():
        assert await (await app.start(order)).result(600) == "done"


@pytest.mark.spec("FLOW-26")
async def test_a_cancel_reaches_a_task_inside_many_nested_groups(app):
    async def nested(ctx, depth):
        async with asyncio.TaskGroup() as group:
            group.create_task(nested(ctx, depth - 1) if depth else ctx.sleep(500))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        outer = asyncio.create_task(nested(ctx, 20))
        await ctx.step("b", asyncio.sleep, 1)
        outer.cancel()
        return "done"

    async with app.worker():
        assert await (await app.start(order)).result(600) == "done"


@pytest.mark.spec("FLOW-26")
async def test_the_first_few_of_many_open_calls_are_named(app):
    async def order(ctx):
        tasks = [asyncio.create_task(ctx.sleep(9, key=f"nap:{n:03}")) for n in range(100)]
        await asyncio.sleep(0)
        return len(tasks)

    await assert_left_open(app, order, "'nap:008', 'nap:009' and 90 more")


@pytest.mark.spec("FLOW-26")
async def test_a_cancelled_task_can_take_time_to_end(app):
    ended = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def slow():
            try:
                await ctx.sleep(100)
            finally:
                await asyncio.sleep(0.5)
                ended.append(1)

        task = asyncio.create_task(slow())
        await ctx.step("a", asyncio.sleep, 1)
        task.cancel()
        return "done"

    async with app.worker():
        assert await (await app.start(order)).result(60) == "done"
