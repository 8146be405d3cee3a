"""`cost_max`: what a step may cost is reserved before its call, and a run that may not pay for it pauses."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import Backoff, Status, Task, UsageError
from tests.engine.kit import keys, trail, until


async def paused(app, run):
    """Return the run when it is paused, and the reason in its trail."""
    found = await until(app, run, Status.PAUSED)
    (why,) = [entry.data for entry in await app.trail(run.id) if entry.type == "paused"][-1:]
    return found, why


@pytest.mark.spec("COST-4")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_run_pauses_before_a_step_that_may_cost_more_than_is_left(app, checkpoint):
    """The function is not called. With a higher budget the run goes on where it was."""
    called = []

    @app.workflow("shop.agent.v1", budget=2, checkpoint=checkpoint)
    async def agent(ctx):
        async def model(n):
            called.append(n)
            ctx.cost(0.9)

        for n in range(3):
            await ctx.step("model", model, n, cost_max=1)
        return "done"

    async with app.worker():
        run = await app.start(agent)
        found, why = await paused(app, run)
        assert (found.cost, called, found.pause_asked_by) == (1.8, [0, 1], "budget")
        assert why == {"by": "budget", "step": "model#3", "cost_max": 1, "cost": 1.8, "budget": 2}
        explained = await app.explain(run.id)
        assert explained.reason == "budget"
        assert 'budget 2.00: 1.80 spent, the step "model#3" may cost up to 1.00' in explained.text
        await app.resume(run.id, budget=2.8)
        assert await run.result(10) == "done"
    assert called == [0, 1, 2]
    assert (await run.get()).cost == 2.7


@pytest.mark.spec("COST-4")
async def test_a_sync_workflow_reserves_too(app):
    @app.workflow("shop.agent.v1", budget=1)
    def agent(ctx):
        ctx.step("cheap", lambda: ctx.cost(0.6), cost_max=0.6)
        ctx.step("dear", lambda: ctx.cost(0.6), cost_max=0.6)

    async with app.worker():
        run = await app.start(agent)
        _, why = await paused(app, run)
    assert why["step"] == "dear"


@pytest.mark.spec("COST-4")
async def test_branches_reserve_beside_each_other_and_a_step_waits_for_what_others_have_reserved(app):
    """Four items, each at most 0.5 of a budget of 1: two run at once. They cost little: all are paid."""
    running, most = 0, 0

    @app.workflow("shop.agent.v1", budget=1)
    async def agent(ctx):
        async def model(n):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            ctx.cost(0.1)
            running -= 1
            return n

        return await ctx.map("model", model, range(4), cost_max=0.5)

    async with app.worker():
        run = await app.start(agent)
        assert await run.result(30) == [0, 1, 2, 3]
    assert most == 2
    assert "paused" not in await trail(app, run)
    assert (await run.get()).cost == 0.4


@pytest.mark.spec("COST-4")
async def test_a_map_pauses_once_nothing_more_can_be_paid_and_keeps_what_is_done(app):
    """Steps that run are not cut off: their cost would be spent and not recorded."""

    @app.workflow("shop.agent.v1", budget=1)
    async def agent(ctx):
        async def model(n):
            await asyncio.sleep(1 + n)
            ctx.cost(0.4)

        await ctx.map("model", model, range(5), cost_max=0.5)

    async with app.worker():
        run = await app.start(agent)
        found, why = await paused(app, run)
        assert (found.cost, sorted(await keys(app, run))) == (0.8, ["model[0]", "model[1]"])
        assert (why["cost"], why["cost_max"]) == (0.8, 0.5)
        await app.resume(run.id, budget=10)
        await run.result(60)
    assert (await run.get()).cost == 2


@pytest.mark.spec("COST-4")
async def test_a_cost_above_cost_max_is_recorded_and_logged(app, caplog):
    """Money that is spent is spent."""

    @app.workflow("shop.agent.v1", budget=10)
    async def agent(ctx):
        await ctx.step("model", lambda: ctx.cost(3), cost_max=0.5)

    with caplog.at_level(logging.WARNING, "holdfast.run"):
        async with app.worker():
            run = await app.start(agent)
            await run.result(10)
    assert (await run.get()).cost == 3
    assert "step 'model' has cost 3.00, more than its cost_max of 0.50" in caplog.text


@pytest.mark.spec("COST-4")
async def test_each_try_is_reserved_anew(app):
    """A failed try has cost something: the next one may not be paid any more."""
    tries = []

    @app.workflow("shop.agent.v1", budget=1)
    async def agent(ctx):
        async def model():
            tries.append(1)
            ctx.cost(0.3)
            raise ValueError("again")

        await ctx.step("model", model, cost_max=0.4, retry=Backoff.fixed(0.1, attempts=9))

    async with app.worker():
        run = await app.start(agent)
        found, _ = await paused(app, run)
    assert (found.cost, len(tries)) == (0.9, 3)


@pytest.mark.spec("COST-4")
async def test_without_a_budget_cost_max_limits_nothing(app):
    @app.workflow("shop.agent.v1")
    async def agent(ctx):
        await ctx.step("model", lambda: ctx.cost(5), cost_max=1)

    async with app.worker():
        run = await app.start(agent)
        await run.result(10)
    assert (await run.get()).cost == 5


@pytest.mark.spec("COST-4")
async def test_a_plan_pauses_before_a_task_that_may_cost_more_than_is_left(app):
    plan = app.plan("shop.agent.v1", [Task("A", cost_max=1), Task("B", cost_max=1)], budget=1.5)
    called = []

    @plan.task("A")
    async def a(task):
        called.append("A")
        task.cost(0.9)

    @plan.task("B")
    async def b(task):
        called.append("B")

    async with app.worker():
        run = await app.start(plan)
        found, why = await paused(app, run)
        assert (found.cost, called, why["step"], why["cost_max"]) == (0.9, ["A"], "B", 1)
        await app.resume(run.id, budget=2)
        await run.result(10)
    assert called == ["A", "B"]


@pytest.mark.parametrize("cost", [0, -1, float("nan"), "5", True, 10**10])
async def test_a_bad_cost_max_is_refused(app, cost):
    with pytest.raises(UsageError, match=r"plan shop.agent.v1, step 'A': cost_max"):
        app.plan("shop.agent.v1", [Task("A", cost_max=cost)])

    @app.workflow("shop.agent.v2")
    async def agent(ctx):
        await ctx.step("model", lambda: None, cost_max=cost)

    async with app.worker():
        run = await app.start(agent)
        found = await until(app, run, Status.FAILED)
    assert "step 'model': cost_max=" in found.last_error


@pytest.mark.spec("COST-4")
async def test_a_step_that_is_given_up_before_it_begins_keeps_nothing_reserved(app, monkeypatch):
    """The store is away for longer than the lease, and the code waits only so long for the step."""
    from holdfast.engine.worker.lease_clock import LeaseClock

    over, away = LeaseClock.over, []
    monkeypatch.setattr(LeaseClock, "over", property(lambda self: bool(away) or over.fget(self)))

    @app.workflow("shop.agent.v1", budget=10)
    async def agent(ctx):
        away.append(True)
        try:
            async with asyncio.timeout(0.5):
                await ctx.step("a", lambda: 1, cost_max=6)
        except TimeoutError:
            away.clear()
        return await ctx.step("b", lambda: "done", cost_max=6)

    async with app.worker():
        run = await app.start(agent)
        assert await run.result(10) == "done"
