"""Costs through crashes: each recorded cost is counted once, in the run and in the budget that covers it."""

from __future__ import annotations

import pytest

from holdfast import App, Status
from holdfast.testing import explore
from tests.laws.effort import longer

STORES = ["memory", *longer("sqlite")]


def family():
    app = App()

    @app.workflow("shop.tool.v1")
    async def tool(ctx, n: int):
        await ctx.step("model", lambda: ctx.cost(1), cost_max=2)
        return n

    @app.workflow("shop.agent.v1", budget=3, budget_covers_children=True)
    async def agent(ctx):
        await ctx.step("plan", lambda: ctx.cost(1))
        one = await ctx.call(tool, 1)
        two = await ctx.call(tool, 2)
        await ctx.step("sum", lambda: ctx.cost(0.5), cost_max=0.5)
        return one + two

    return app, agent


@pytest.mark.slow
@pytest.mark.spec("COST-1", "COST-4", "COST-5", "LEASE-14")
@pytest.mark.parametrize("store", STORES)
def test_each_cost_is_counted_once_after_a_fault_at_any_store_call(store):
    """A crash before or after each call, a lost reply, a repeated call, a zombie: the sums stay the same."""
    app, agent = family()
    sums = []

    def script(stage, run):
        """Raise the budget when the second tool has paused for it; then look at the sums."""
        for _ in range(50):
            stage.advance(60)
            if run.get().status in {Status.SUCCEEDED, Status.FAILED}:
                break
            stopped = [one for one in stage.runs("shop.tool.v1") if one.status is Status.PAUSED]
            if stopped and (run.get().budget or 0) < 10:
                stage.resume(run, budget=10)
        runs = [one.get() for one in stage.runs()]
        sums.append((run.get().account_cost_units, sum(one.cost_units for one in runs), len(runs)))

    report = explore(agent, app=app, store=store, script=script)
    assert report.plays > 30
    assert set(sums) == {(3_500_000, 3_500_000, 3)}
