"""Costs and budgets: the cost of a step is counted once, and a run pauses before it spends more."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, IllegalMove, Status, UsageError
from tests.engine.kit import keys, outcome, trail, until


@pytest.mark.spec("COST-1")
async def test_the_cost_of_a_run_is_the_sum_of_its_steps_however_often_it_is_executed(app):
    """Failed tries cost too. A second execution adds nothing."""
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def flaky():
            tries.append(1)
            ctx.cost(0.5)
            if len(tries) < 3:
                raise ValueError("not yet")

        await ctx.step("flaky", flaky, retry=Backoff.fixed(0.1, attempts=5))
        await ctx.sleep(5)
        await ctx.step("plain", lambda: ctx.cost(0.1))
        await ctx.sleep(5)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    found = await run.get()
    assert found.cost == 1.6
    assert {step.key: step.cost for step in await app.steps(run.id)}["flaky"] == 1_500_000


@pytest.mark.spec("COST-2", "PAUSE-1")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
@pytest.mark.parametrize("whose", ["start", "workflow", "both"])
async def test_a_run_that_reaches_its_budget_pauses_before_its_next_step(app, checkpoint, whose):
    """The step that reached the budget keeps its result. With a higher budget the run continues."""
    done = []

    def spend(ctx, n):
        done.append(n)
        ctx.cost(1)

    @app.workflow(
        "shop.order.v1", checkpoint=checkpoint, budget={"start": None, "workflow": 3, "both": 99}[whose]
    )
    async def order(ctx):
        for n in range(6):
            await ctx.step(f"s{n}", spend, ctx, n)
        return "done"

    async with app.worker():
        run = await app.start(order, **({} if whose == "workflow" else {"budget": 3}))
        found = await until(app, run, Status.PAUSED)
        assert (found.cost, found.budget, done) == (3, 3, [0, 1, 2])
        assert await keys(app, run) == ["s0", "s1", "s2"]
        explanation = await app.explain(run.id)
        assert (explanation.reason, explanation.data["cost"], explanation.data["budget"]) == ("budget", 3, 3)
        assert "paused: budget 3.00 reached" in explanation.text
        assert f"`holdfast resume {run.id} --budget N`" in explanation.text
        with pytest.raises(IllegalMove, match=r"it has spent 3\.00 of its budget of 3\.00"):
            await app.resume(run.id)
        await app.resume(run.id, budget=7)
        assert await run.result(10) == "done"
    assert done == [0, 1, 2, 3, 4, 5]
    assert (await trail(app, run)).count("paused") == 1
    assert (await run.get()).cost == 6


@pytest.mark.spec("COST-2")
async def test_costs_of_earlier_executions_count_against_the_budget_of_a_segment(app):
    @app.workflow("shop.order.v1", checkpoint="segment", budget=3)
    async def order(ctx):
        await ctx.step("a", lambda: ctx.cost(2))
        await ctx.sleep(5)
        await ctx.step("b", lambda: ctx.cost(0.5))
        await ctx.step("c", lambda: ctx.cost(0.5))
        await ctx.step("d", lambda: ctx.cost(0.5))

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.PAUSED)
        assert await keys(app, run) == ["a", "sleep", "b", "c"]


@pytest.mark.spec("COST-2")
async def test_steps_beside_an_open_wait_of_a_segment_are_counted_too(app):
    """Such steps are committed one by one, and the segment counts their cost."""

    @app.workflow("shop.order.v1", checkpoint="segment", budget=3)
    async def order(ctx):
        async def steps():
            for n in range(4):
                await ctx.step(f"s{n}", spend, ctx)

        await asyncio.gather(steps(), ctx.sleep(2))

    async def spend(ctx):
        await asyncio.sleep(1)
        ctx.cost(1)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.PAUSED)
    assert (await run.get()).cost == 3


@pytest.mark.spec("COST-2")
async def test_a_last_step_that_reaches_the_budget_of_a_segment_is_kept_and_the_run_pauses(app):
    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        await ctx.step("a", lambda: ctx.cost(5))
        return "done"

    async with app.worker():
        run = await app.start(order, budget=5)
        await until(app, run, Status.PAUSED)
        await app.resume(run.id, budget=5.5)
        assert await outcome(app, run) == ("succeeded", "done")


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf"), "5", True, 10**10])
async def test_a_bad_budget_is_refused(app, budget):
    with pytest.raises(UsageError, match="budget"):
        await app.start("shop.order.v1", budget=budget)
    with pytest.raises(UsageError, match=r"shop.order.v1: budget"):
        app.workflow("shop.order.v1", budget=budget)(_nothing)


async def _nothing(ctx):
    pass


async def test_a_started_run_gets_the_published_budget(app):
    @app.workflow("shop.order.v1", budget=2.5)
    async def order(ctx):
        pass

    early = await app.start(order)
    assert (await early.get()).budget == 2.5
    await app.publish()
    (published,) = await app.store.definitions()
    assert published.budget == 2_500_000
    run = await app.start("shop.order.v1")
    assert (await run.get()).budget == 2.5


@pytest.mark.spec("COST-3")
@pytest.mark.parametrize("budget", [0, -1, float("nan"), "5", True])
async def test_a_bad_budget_of_a_resume_is_refused(app, budget):
    run = await app.start("shop.order.v1")
    with pytest.raises(UsageError, match="budget="):
        await app.resume(run.id, budget=budget)
