"""Gates, awaited events, sleeps and budgets between the tasks of a plan; a plan as a child."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast import Approval, Completed, Sleep, Status, Task, Wait
from holdfast.records import ANY
from tests.engine.kit import outcome, trail, until
from tests.engine.plans.plan_helpers import TYPE, fulfil, live


@pytest.mark.spec("APPR-1", "APPR-4", "RETRY-7")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_gate_between_two_tasks_is_decided_by_a_person(app, approved):
    seen = []
    plan = app.plan(TYPE, [Task("A"), Approval("MANAGER", ask="Ship?", data={"total": 5}), Task("B")])

    async def work(task):
        seen.append(task.name)
        return task.outputs["MANAGER"].comment if task.name == "B" else None

    for name in "AB":
        plan.task(name)(work)
    async with app.worker():
        run = await app.start(plan)
        await until(app, run, Status.WAITING)
        (gate,) = await app.store.approvals("default")
        assert (gate.step, gate.ask, gate.data) == ("MANAGER", "Ship?", {"total": 5})
        await app.store.decide(run.id, approved=approved, by="ada", comment="fine", tenant=ANY)
        expected = ("succeeded", "fine") if approved else ("failed", "rejected")
        assert await outcome(app, run) == expected
    assert seen == (["A", "B"] if approved else ["A"])


@pytest.mark.spec("APPR-4")
@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"by": "bob", "comment": "too dear"}, "rejected: by bob: too dear"),
        ({"by": "bob"}, "rejected: by bob"),
        ({"comment": "too dear"}, "rejected: too dear"),
        ({}, "rejected: no reason given"),
    ],
    ids=repr,
)
async def test_a_plan_says_once_that_it_was_rejected(app, decision, said):
    app.plan(TYPE, [Approval("MANAGER")])
    await app.publish()
    run = await app.start(TYPE)
    await app.reject(run.id, **decision)
    assert (await run.get()).last_error == said


async def test_an_awaited_event_that_is_there_already_costs_no_new_claim(app):
    """An event that was settled in between is an output like any other."""
    plan = app.plan(TYPE, [Task("A"), Wait("PAID", "paid"), Sleep("NAP", 0), Task("B")])

    @plan.task("A")
    async def first(task):
        await app.emit("paid", {"sum": 3}, run=task.run_id)

    @plan.task("B")
    async def last(task):
        return [task.outputs["PAID"].payload, task.outputs["PAID"].topic, list(task.outputs)]

    async with app.worker():
        run = await app.start(plan)
        assert await run.result(60) == [{"sum": 3}, "paid", ["A", "PAID", "NAP"]]
    assert (await trail(app, run)).count("leased") == 1


@pytest.mark.slow
@pytest.mark.spec("RETRY-7")
async def test_an_awaited_event_that_does_not_come_fails_the_run(app):
    plan = app.plan(TYPE, [Wait("PAID", "paid", timeout=hf.hours(1)), Task("B")])
    plan.task("B")(lambda _: 1)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run, 2 * 3600) == ("failed", "timeout")
    assert await live(app, run) == [("PAID", "failed"), ("B", "pending")]


@pytest.mark.spec("COST-2")
async def test_a_budget_that_is_reached_pauses_before_the_next_step(app):
    seen = []
    plan = app.plan(TYPE, [Task("A"), Task("B")], budget=1)

    async def work(task):
        seen.append(task.name)
        return Completed(None, cost=1)

    for name in "AB":
        plan.task(name)(work)
    async with app.worker():
        run = await app.start(plan)
        await until(app, run, Status.PAUSED)
        assert seen == ["A"]
        await app.resume(run.id, budget=3)
        assert (await app.final(run.id, 60)).status is Status.SUCCEEDED


async def test_a_plan_is_a_child_like_any_other(app):
    plan = fulfil(app, "A", "B")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.call(plan, {"id": 1})

    async with app.worker():
        assert await (await app.start(order)).result(60) == 1
