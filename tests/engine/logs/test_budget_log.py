"""Log lines about budgets: a run that its budget stops is one warning, which says so."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import RunFilter, Status
from holdfast.shown.runs import facts
from tests.engine.kit import until

pytestmark = pytest.mark.spec("OPS-6", "COST-2")


@pytest.fixture
def told(caplog):
    """Return the warnings without type and id, and all lines as one text."""
    for name in (
        "holdfast",
        "holdfast.worker",
        "holdfast.keeper",
    ):  # others may have set levels
        caplog.set_level(logging.INFO, name)
    return lambda: (
        [one.getMessage().split(" ", 2)[2] for one in caplog.records if one.levelname == "WARNING"],
        "\n".join(one.getMessage() for one in caplog.records),
    )


async def test_a_run_that_has_reached_its_budget_is_one_warning(app, told):
    @app.workflow("shop.spend.v1", budget=0.05)
    async def spend(ctx):
        await ctx.step("one", lambda: ctx.cost(0.05))
        await ctx.step("two", lambda: None)

    async with app.worker():
        await until(app, await app.start(spend), Status.PAUSED)
    assert told()[0] == ["paused: budget 0.05 reached"]


async def test_a_step_that_may_cost_too_much_is_one_warning_and_the_hook_is_called(app, told):
    """The step stops its run in the task of the run: the answer to the pause is waited for all the same."""
    ends = []

    @app.on("run.paused", "run.released")
    async def noted(notice):
        ends.append(notice.name)

    @app.workflow("shop.spend.v1", budget=0.05)
    async def spend(ctx):
        await ctx.step("one", lambda: ctx.cost(0.03))
        await ctx.step("two", lambda: None, cost_max=0.03)

    async with app.worker():
        await until(app, await app.start(spend), Status.PAUSED)
    warnings, text = told()
    assert warnings == ["paused: budget 0.05 may be exceeded (0.03 spent)"]
    assert " short after" not in text
    assert ends == ["run.paused"]


async def test_a_child_that_a_shared_budget_stops_is_one_warning(app, told):
    @app.workflow("shop.kid.v1")
    async def kid(ctx):
        await ctx.step("one", lambda: ctx.cost(0.05))
        await ctx.step("two", lambda: None)

    @app.workflow("shop.top.v1", budget=0.05, budget_covers_children=True)
    async def top(ctx):
        await ctx.call(kid)

    async with app.worker():
        run = await app.start(top)
        await asyncio.sleep(5)
    assert told()[0] == ["paused: the budget that covers it is reached"]
    (child,) = await app.list(RunFilter(parent=run.id))
    shown = [dict(facts(await app.get(one.id), [], [], child.created_at)) for one in (run, child)]
    assert [one.get("cost") for one in shown] == [None, "0.05"]
    assert shown[0]["shared budget"] == "0.05 of 0.05 spent, with its children"


async def test_a_pause_by_a_person_is_no_warning(app, told):
    @app.workflow("shop.slow.v1", budget=5)
    async def slow(ctx):
        for n in range(9):
            await ctx.step(f"nap{n}", asyncio.sleep, 5)

    async with app.worker():
        run = await app.start(slow)
        await until(app, run, Status.LEASED)
        await app.pause(run.id)
        await until(app, run, Status.PAUSED)
    warnings, text = told()
    assert warnings == []
    assert " paused after " in text
