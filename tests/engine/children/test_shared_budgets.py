"""A budget that covers children: what they cost counts against the budget of the run at the top."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status, Task
from tests.engine.kit import until


def spend(ctx, amount=1.0):
    ctx.cost(amount)


async def members(app):
    return {run.type: run for run in await app.list()}


@pytest.mark.spec("COST-5")
async def test_a_child_pauses_before_a_step_when_the_common_budget_is_reached_and_goes_on_with_a_higher_one(
    app,
):
    """The parent waits for its child meanwhile. The child says whose budget it is."""

    @app.workflow("shop.tool.v1")
    async def tool(ctx):
        for n in range(3):
            await ctx.step(f"s{n}", spend, ctx)
        return "tool"

    @app.workflow("shop.agent.v1", budget=3, budget_covers_children=True)
    async def agent(ctx):
        await ctx.step("first", spend, ctx)
        return await ctx.call(tool)

    async with app.worker():
        run = await app.start(agent)
        await asyncio.sleep(5)
        found = await members(app)
        parent, child = found["shop.agent.v1"], found["shop.tool.v1"]
        assert (parent.status, parent.cost, parent.account_cost_units) == (Status.WAITING, 1, 3_000_000)
        assert (child.status, child.cost) == (Status.PAUSED, 2)
        explained = await app.explain(child.id)
        assert f"budget 3.00 of run {run.id} reached" in explained.text
        assert explained.data["budget_of"] == run.id
        await app.resume(run.id, budget=10)
        assert await run.result(30) == "tool"
    assert (await run.get()).account_cost_units == 4_000_000


@pytest.mark.spec("COST-5")
async def test_children_beside_each_other_overshoot_by_the_steps_that_run_already_and_no_more(app):
    """Ten children spend 1 each second, beside each other, of a budget of 25."""

    @app.workflow("shop.tool.v1")
    async def tool(ctx):
        async def work():
            await asyncio.sleep(1)
            ctx.cost(1)

        for n in range(10):
            await ctx.step(f"s{n}", work)

    @app.workflow("shop.agent.v1", budget=25, budget_covers_children=True)
    async def agent(ctx):
        await asyncio.gather(*[ctx.call(tool, key=f"t{n}") for n in range(10)])

    async with app.worker(slots=20):
        run = await app.start(agent)
        await asyncio.sleep(30)
        runs = await app.list(limit=50)
        spent = (await run.get()).account_cost_units
        assert 25_000_000 <= spent <= 35_000_000
        assert {one.status for one in runs if one.type == "shop.tool.v1"} == {Status.PAUSED}
        assert sum(one.cost_units for one in runs) == spent
        await app.resume(run.id, budget=1000)
        await run.result(60)
    assert (await run.get()).account_cost_units == 100_000_000


@pytest.mark.spec("COST-4", "COST-5")
async def test_what_a_step_of_a_child_may_cost_is_asked_of_the_common_budget(app):
    @app.workflow("shop.tool.v1", checkpoint="segment")
    async def tool(ctx):
        await ctx.step("model", spend, ctx, 0.4, cost_max=0.5)
        await ctx.step("again", spend, ctx, 0.4, cost_max=0.5)

    @app.workflow("shop.agent.v1", budget=1, budget_covers_children=True)
    async def agent(ctx):
        await ctx.step("first", spend, ctx, 0.2)
        await ctx.call(tool)

    async with app.worker():
        run = await app.start(agent)
        await asyncio.sleep(5)
        child = (await members(app))["shop.tool.v1"]
        assert (child.status, child.cost) == (Status.PAUSED, 0.4)
        said = (await app.explain(child.id)).text
        assert f'budget 1.00 of run {run.id}: 0.60 spent, the step "again" may cost up to 0.50' in said
        await app.resume(run.id, budget=1.1)
        await run.result(30)


@pytest.mark.spec("COST-5")
async def test_a_plan_shares_its_budget_and_is_covered_like_any_run(app):
    plan = app.plan("shop.tool.v1", [Task("A"), Task("B")])

    @plan.task("A")
    async def a(task):
        task.cost(1)

    @plan.task("B")
    async def b(task):
        task.cost(1)

    @app.workflow("shop.agent.v1", budget=1, budget_covers_children=True)
    async def agent(ctx):
        await ctx.call(plan)

    async with app.worker():
        run = await app.start(agent)
        await asyncio.sleep(5)
        child = (await members(app))["shop.tool.v1"]
        assert (child.status, child.current_step_name) == (Status.PAUSED, "B")
        await app.resume(run.id, budget=5)
        await run.result(30)


@pytest.mark.spec("COST-5")
async def test_the_run_at_the_top_pauses_too(app):
    @app.workflow("shop.tool.v1")
    async def tool(ctx):
        await ctx.step("s", spend, ctx)

    @app.workflow("shop.agent.v1", budget=1, budget_covers_children=True)
    async def agent(ctx):
        await ctx.call(tool)
        await ctx.step("own", spend, ctx)

    async with app.worker():
        run = await app.start(agent)
        found = await until(app, run, Status.PAUSED)
        assert (found.cost, found.pause_asked_by) == (0, "budget")
        assert "budget 1.00 reached" in (await app.explain(run.id)).text
        await app.resume(run.id, budget=3)
        await run.result(30)
