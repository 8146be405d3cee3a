"""Cases found in review: a run could hang, stall, or see a different order in a later execution."""

from __future__ import annotations

import asyncio
import functools

import pytest

from holdfast import App, Backoff, RetryAfter, Status
from holdfast.testing.faulty import Faulty, delay_reply, fail_before
from tests.engine.kit import keys, outcome, trail


@pytest.mark.spec("FLOW-9")
async def test_a_retry_due_within_a_second_is_not_forgotten_beside_an_open_wait(app):
    tries = []

    def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return "at last"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        flaking = asyncio.ensure_future(ctx.step("flaky", flaky, retry=Backoff.fixed(10)))
        never = asyncio.ensure_future(ctx.await_event("never"))
        news = asyncio.ensure_future(ctx.await_event("news"))
        await asyncio.wait([flaking, never], return_when=asyncio.FIRST_COMPLETED)
        never.cancel()
        return [flaking.result(), news.result().topic]

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(9.6)
        await app.emit("news")
        assert await run.result(60) == ["at last", "news"]


@pytest.mark.spec("FLOW-2")
async def test_a_branch_that_was_answered_before_the_body_is_answered_first_at_replay(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        branch = asyncio.ensure_future(ctx.step("b", lambda: "b"))
        await ctx.step("m", asyncio.sleep, 5)
        seen.append(branch.done())
        await ctx.sleep(100)
        await branch

    async with app.worker():
        await (await app.start(order)).result(300)
    assert seen == [True, True]


@pytest.mark.spec("FLOW-2")
async def test_a_renewal_that_overtakes_a_commits_reply_does_not_change_the_order(store, world):
    app, winners = App(Faulty(store), world=world), []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        names = {
            asyncio.ensure_future(ctx.step("quick", asyncio.sleep, 4)): "step",
            asyncio.ensure_future(ctx.await_event("go")): "event",
        }
        done, _ = await asyncio.wait(names, return_when=asyncio.FIRST_COMPLETED)
        winners.append({names[one] for one in done})
        await ctx.sleep(50, key="rest")

    async with app.worker():
        app.store.plan("commit", 2, delay_reply(2))
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.emit("go")
        await run.result(300)
    assert winners == [{"step"}, {"step"}]


@pytest.mark.spec("FLOW-9")
async def test_events_in_quick_succession_all_reach_the_code_soon(app, world):
    learnt = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch(topic):
            await ctx.await_event(topic)
            learnt.append(world.monotonic())

        await asyncio.gather(ctx.step("long", asyncio.sleep, 100), branch("a"), branch("b"))

    async with app.worker(lease=300):
        run = await app.start(order)
        await asyncio.sleep(30)
        await app.emit("a")
        await asyncio.sleep(0.1)
        await app.emit("b")
        await run.result(200)
    assert learnt[1] < 31.5


@pytest.mark.spec("FLOW-2")
@pytest.mark.parametrize("kind", ["step", "sleep"])
async def test_one_key_for_two_calls_is_refused_and_does_not_hang(app, kind):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def ask():
            await (ctx.step("a", lambda: 1, key="k") if kind == "step" else ctx.sleep(5, key="k"))

        await asyncio.gather(ask(), ask())
        await ctx.sleep(3, key="rest")

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("failed", "usage")


@pytest.mark.spec("FLOW-19", "REW-2")
async def test_a_step_that_failed_inside_a_task_group_fails_the_run_at_once_and_can_be_retried(app):
    executions, tries = [], []

    def broken():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")
        return 1

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executions.append(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("bad", broken, retry=Backoff.none()))

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("failed", "exhausted")
        assert len(executions) == 1
        await app.retry(run.id)
        assert await outcome(app, run, 300) == ("succeeded", None)


async def test_continue_as_inside_a_task_group_continues(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        async def branch():
            ctx.continue_as(n + 1)

        if n == 0:
            async with asyncio.TaskGroup() as group:
                group.create_task(branch())
        return n

    async with app.worker():
        run = await app.start(order, 0)
        assert await run.result(300) == 1
        assert "continued_as" in (await run.get()).result


async def test_continue_as_in_a_finally_around_a_wait_waits(app):
    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        if n:
            return n
        try:
            await ctx.sleep(100)
        finally:
            ctx.continue_as(1)

    async with app.worker():
        run = await app.start(order, 0)
        await asyncio.sleep(50)
        assert (await app.get(run.id)).status is Status.WAITING
        assert await run.result(300) == 1
        assert "continued_as" in (await run.get()).result


async def test_a_short_outage_of_the_store_does_not_fail_continue_as(store, world):
    app = App(Faulty(store), world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        if n == 0:
            app.store.plan("get", 1, fail_before)
            ctx.continue_as(1)
        return n

    async with app.worker():
        run = await app.start(order, 0)
        await asyncio.sleep(10)
        assert (await app.get(run.id)).status is Status.SUCCEEDED
    assert "lease_expired" not in await trail(app, run)


@pytest.mark.spec("FLOW-9")
async def test_a_branch_left_from_an_earlier_execution_cannot_use_the_next_one(app):
    executions, called = [], []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.5))
    async def order(ctx):
        executions.append(1)

        async def later():
            await asyncio.sleep(1)
            await ctx.step("later", lambda: called.append(1))

        left = asyncio.ensure_future(later())
        if len(executions) == 1:
            raise RuntimeError("again")
        await left

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("succeeded", None)
    assert len(called) == 1


@pytest.mark.spec("FLOW-21")
async def test_the_limit_of_steps_holds_for_all_branches_together(app):
    @app.workflow("shop.order.v1", steps_max=5)
    async def order(ctx):
        await asyncio.gather(*[ctx.step("a", lambda: 1, key=f"a{n}") for n in range(20)])

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("failed", "history")
    assert len(await keys(app, run)) <= 5


@pytest.mark.spec("FLOW-21")
async def test_the_last_allowed_step_can_be_retried(app):
    tries = []

    def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")

    @app.workflow("shop.order.v1", steps_max=2)
    async def order(ctx):
        await ctx.step("a", lambda: 1)
        await ctx.step("flaky", flaky, retry=Backoff.fixed(5))

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("succeeded", None)


@pytest.mark.spec("FLOW-1")
async def test_a_key_that_is_not_text_is_refused(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1, key=7)
        await ctx.sleep(5)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 300) == ("failed", "usage")


@pytest.mark.spec("FLOW-1")
async def test_a_name_that_no_store_can_keep_is_refused(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a\0b\ud800", lambda: 1)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 600) == ("failed", "usage")


@pytest.mark.spec("FLOW-11")
async def test_random_numbers_in_a_step_do_not_change_those_of_the_body(app):
    drawn = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("inside", lambda: ctx.random())
        drawn.append(ctx.random())
        await ctx.sleep(5)

    async with app.worker():
        await (await app.start(order)).result(60)
    assert drawn[0] == drawn[1]


def traced(function):
    @functools.wraps(function)
    async def wrapper(*args):
        return await function(*args)

    return wrapper


@traced
async def number() -> int:
    return 1


@traced
async def word() -> str:
    return "one"


@pytest.mark.spec("FLOW-17")
async def test_functions_under_the_same_decorator_keep_their_own_types(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [await ctx.step("number", number), await ctx.step("word", word)]

    async with app.worker():
        assert await (await app.start(order)).result(60) == [1, "one"]


async def test_a_retry_policy_that_raises_fails_the_run_and_is_named(app):
    @app.workflow("shop.order.v1", retry=Backoff.of(lambda _: 1 / 0))
    async def order(ctx):
        raise RuntimeError("no")

    async with app.worker():
        run = await app.start(order)
        status, kind = await outcome(app, run, 600)
        assert (status, kind) == ("failed", "usage")


@pytest.mark.spec("FLOW-10")
async def test_a_body_that_cancels_itself_does_not_affect_the_next_execution(app):
    executions, caught = [], []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.5))
    async def order(ctx):
        executions.append(1)
        if len(executions) == 1:
            asyncio.current_task().cancel()
            await asyncio.sleep(1)

        async def bad():
            raise ValueError("no")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(bad())
        except BaseException as error:  # noqa: BLE001 - which one it is is the question
            caught.append(type(error).__name__)

    async with app.worker():
        await (await app.start(order)).result(60)
    assert caught == ["ExceptionGroup"]


@pytest.mark.parametrize("how", ["sleep", "body", "step"])
async def test_a_bad_duration_is_refused_and_does_not_loop_forever(app, how):
    def broken():
        raise RetryAfter(float("inf"))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        if how == "sleep":
            await ctx.sleep(float("nan"))
        elif how == "step":
            await ctx.step("broken", broken)
        else:
            broken()

    async with app.worker():
        assert await outcome(app, await app.start(order), 600) == ("failed", "usage")


@pytest.mark.spec("FLOW-23")
async def test_the_last_progress_is_shown_even_if_it_came_at_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.progress(1, 10)
        await ctx.step("a", lambda: 1)
        ctx.progress(10, 10)

    async with app.worker():
        run = await app.start(order)
        await run.result(30)
    assert (await app.get(run.id)).progress["done"] == 10
