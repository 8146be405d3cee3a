"""Runs of one version of a plan, executed by code that knows another."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status
from tests.engine.kit import outcome, trail, until
from tests.engine.plans.plan_helpers import V1, V2, at_the_gate, live, plan_of


@pytest.mark.spec("PLAN-2", "PLAN-15")
@pytest.mark.parametrize("deployed", [["C", "B", "A"], ["A", "NEW", "B", "C"]])
async def test_code_that_knows_only_v2_finishes_runs_of_v1(deploy, deployed):
    """The run goes by its rows, in their order, whatever steps v2 has between."""
    seen, old, new = [], deploy(), deploy()
    plan = plan_of(old, V1, ["A", "B", "C"], seen)
    await old.publish()
    run = await old.start(plan)
    plan_of(new, V2, deployed, seen)
    async with new.worker() as worker:
        assert worker.types == (V2, V1)
        assert await outcome(new, run) == ("succeeded", "C")
    assert seen == ["v2 A", "v2 B", "v2 C"]
    assert (await new.get(run.id)).type == V1


@pytest.mark.spec("PLAN-2")
async def test_each_version_keeps_its_own_handlers_where_both_are_here(app):
    seen = []
    one, two = (plan_of(app, type_, ["A", "B"], seen) for type_ in (V1, V2))
    async with app.worker():
        for plan in (one, two):
            assert await outcome(app, await app.start(plan)) == ("succeeded", "B")
    assert seen == ["v1 A", "v1 B", "v2 A", "v2 B"]


@pytest.mark.spec("PLAN-2", "PLAN-15")
async def test_a_version_that_is_here_without_a_handler_finds_that_of_the_newest(app):
    seen = []
    one = plan_of(app, V1, ["A", "B"], seen, handled=["A"])
    for n in (2, 10, 9):
        plan_of(app, f"shop.fulfil.v{n}", ["B"], seen)
    async with app.worker() as worker:
        assert V1 in worker.types
        assert await outcome(app, await app.start(one)) == ("succeeded", "B")
    assert seen == ["v1 A", "10 B"]


@pytest.mark.spec("PLAN-2", "PLAN-15")
async def test_a_handler_that_is_bound_to_its_version_serves_no_other(deploy, world):
    seen, old, new = [], deploy(), deploy()
    run = await old.start(plan_of(old, V1, ["A", "B"], seen))
    two = plan_of(new, V2, ["A", "B"], seen, bound=["B"])
    async with new.worker() as worker:
        assert worker.types == (V2,)
        assert await outcome(new, await new.start(two)) == ("succeeded", "B")
        await asyncio.sleep(200)
        assert "leased" not in await trail(new, run)
        said = await new.explain(run.id)
    assert seen == ["v2 A", "v2 B"]
    assert (said.reason, (await new.get(run.id)).attempt) == ("no_worker", 0)


@pytest.mark.slow
@pytest.mark.spec("PLAN-15")
async def test_runs_are_claimed_whose_remaining_tasks_are_handled(deploy):
    """v2 has no task A any more: a v1 run that has passed A is finished; others wait for a worker that has
    A.
    """
    seen, old, new = [], deploy(), deploy()
    plan = plan_of(old, V1, ["A", "GATE", "B", "C"], seen)
    async with old.worker():
        past = await at_the_gate(old, plan)
    before = await old.start(plan)
    plan_of(new, V2, ["B", "C"], seen)
    async with new.worker() as worker:
        assert worker.types == (V2,)
        await new.approve(past.id)
        assert await outcome(new, past) == ("succeeded", "C")
        await asyncio.sleep(330)
        assert (await new.get(before.id)).status is Status.PENDING
        assert (await new.get(before.id)).attempt == 0
        said = await new.explain(before.id)
        assert (said.reason, "'A'" in said.text) == ("no_handler", True)
    assert seen == ["v1 A", "v2 B", "v2 C"]
    async with old.worker():
        await until(old, before, Status.WAITING)
    assert await live(old, before) == [
        ("A", "succeeded"), ("GATE", "waiting"), ("B", "pending"), ("C", "pending"),
    ]  # fmt: skip


@pytest.mark.spec("PLAN-15")
async def test_a_run_is_not_begun_whose_later_tasks_are_not_handled(deploy):
    """The current task has a handler, but this worker could not finish the run: a worker that can should take
    it.
    """
    seen, old, new = [], deploy(), deploy()
    plan = plan_of(old, V1, ["A", "B"], seen)
    await old.publish()
    run = await old.start(plan)
    await old.append_step(run.id, "EXTRA")
    plan_of(new, V2, ["A", "B"], seen)
    async with new.worker():
        await asyncio.sleep(200)
        said = await new.explain(run.id)
    assert (seen, said.reason, "'EXTRA'" in said.text) == ([], "no_handler", True)


@pytest.mark.spec("PLAN-15")
@pytest.mark.parametrize("unknown", ["A", "B"])
async def test_no_handler_after_of_one_version_fails_no_run_of_another(deploy, unknown):
    """It does not matter whether the current task is unknown or a later one: v1 did not allow its runs to
    fail.
    """
    seen, old, new = [], deploy(), deploy()
    plan = plan_of(old, V1, ["A", "B", "C"], seen)
    await old.publish()
    run = await old.start(plan)
    plan_of(new, V2, [name for name in "ABC" if name != unknown], seen, no_handler_after=10)
    async with new.worker():
        await asyncio.sleep(330)
        assert (await new.get(run.id)).status is Status.PENDING
        assert (await new.explain(run.id)).reason == "no_handler"
    async with old.worker():
        assert await outcome(old, run, 120) == ("succeeded", "C")
    assert seen == ["v1 A", "v1 B", "v1 C"]


@pytest.mark.spec("PLAN-15")
async def test_a_worker_with_some_handlers_leaves_runs_to_a_worker_with_all(deploy):
    """If the first worker gave the runs back for a minute, the other worker would have to wait."""
    seen, old, new = [], deploy(), deploy()
    plan = plan_of(old, V1, ["A", "B"], seen)
    two = plan_of(new, V2, ["B"], seen)
    async with old.worker(slots=1), new.worker():
        await new.start(two)
        runs = [await old.start(plan) for _ in range(20)]
        for run in runs:
            assert await outcome(old, run) == ("succeeded", "B")
            assert "retried" not in await trail(old, run)
    assert sorted(set(seen)) == ["v1 A", "v1 B", "v2 B"]


@pytest.mark.spec("PLAN-15")
async def test_a_version_that_is_published_later_is_served_soon(deploy):
    seen, old, new = [], deploy(), deploy()
    plan_of(new, V2, ["A"], seen)
    async with new.worker():
        run = await old.start(plan_of(old, V1, ["A"], seen))
        assert await outcome(new, run, 120) == ("succeeded", "A")
    assert seen == ["v2 A"]


@pytest.mark.spec("PLAN-15", "ROUTE-2")
async def test_versions_outside_of_a_workers_patterns_are_not_served(deploy):
    seen, old, new = [], deploy(), deploy()
    run = await old.start(plan_of(old, V1, ["A"], seen))
    plan_of(new, V2, ["A"], seen)
    async with new.worker(patterns=[V2]) as worker:
        await asyncio.sleep(100)
        assert worker.types == (V2,)
    assert (await new.get(run.id)).status is Status.PENDING


@pytest.mark.spec("PLAN-12", "PLAN-15")
async def test_code_of_another_version_is_not_served_by_a_plan(deploy):
    """Only plans consist of rows: a code workflow of that name is not served."""
    old, new = deploy(), deploy()

    @old.workflow(V1)
    async def order(ctx):
        return "code"

    await old.publish()
    run = await old.start(order)
    plan_of(new, V2, ["A"], [])
    async with new.worker() as worker:
        await asyncio.sleep(100)
        assert worker.types == (V2,)
    assert (await new.get(run.id)).status is Status.PENDING
