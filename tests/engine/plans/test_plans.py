"""Plans: a fixed list of steps, executed strictly in order, by their rows alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import pytest

import holdfast as hf
from holdfast import Approval, Completed, Conflict, Status, Task, UsageError
from holdfast.records import ANY
from tests.engine.kit import outcome, trail, until
from tests.engine.plans.plan_helpers import TYPE, Receipt, fulfil, live


@pytest.mark.spec("PLAN-1")
async def test_a_start_inserts_all_steps_and_lists_them_in_order(app):
    names = [f"S{n}" for n in range(12)]  # S10 comes after S9, not after S1
    plan = fulfil(app, *names)
    await app.publish()
    run = await app.start(plan)
    steps = await app.steps(run.id)
    assert [(step.seq, step.key) for step in steps] == list(enumerate(names))
    assert [str(step.status) for step in steps] == ["ready"] + ["pending"] * 11
    async with app.worker():
        assert await run.result(60) == 11


@pytest.mark.spec("PLAN-3", "PLAN-5")
async def test_steps_are_executed_strictly_one_after_another(app):
    """While a handler runs, all steps before it have succeeded and all steps after it are pending."""
    seen, plan = [], app.plan(TYPE, [Task(name) for name in "CAB"])

    async def work(task):
        await asyncio.sleep(5)
        seen.append(await live(app, run))
        return task.name

    for name in "CAB":
        plan.task(name)(work)
    await app.publish()
    run = await app.start(plan)
    async with app.worker():
        assert await run.result(60) == "B"
    assert seen == [
        [("C", "running"), ("A", "pending"), ("B", "pending")],
        [("C", "succeeded"), ("A", "running"), ("B", "pending")],
        [("C", "succeeded"), ("A", "succeeded"), ("B", "running")],
    ]


@pytest.mark.spec("PLAN-13")
async def test_the_holder_goes_on_without_a_new_claim(app):
    seen = []
    plan = app.plan(TYPE, [Task("A"), Task("B"), Task("C")], retry=hf.Backoff.fixed(0.2, attempts=3))

    async def work(task):
        seen.append((task.name, task.attempt, task.reason))
        if task.name == "A" and task.attempt == 1:
            raise ValueError("once")

    for name in "ABC":
        plan.task(name)(work)
    await app.publish()
    async with app.worker():
        run = await app.start(plan)
        await run.result(60)
    assert seen == [("A", 1, "start"), ("A", 2, "retry"), ("B", 1, "start"), ("C", 1, "start")]
    told = await trail(app, run)
    assert told == ["created", "leased", "started", "retried"] + ["step_succeeded"] * 3 + ["succeeded"]
    assert (await app.get(run.id)).fence == 1


@pytest.mark.spec("PLAN-13", "LEASE-10")
async def test_a_worker_that_stops_lets_the_run_go_back_between_two_steps(app):
    seen, plan = [], app.plan(TYPE, [Task("A"), Task("B")])

    async def work(task):
        seen.append(task.name)
        await asyncio.sleep(3)

    for name in "AB":
        plan.task(name)(work)
    run = await app.start(plan)
    async with app.worker(grace=100):
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert seen == ["A"]
    found = await app.get(run.id)
    assert (found.status, found.attempt, found.leased_by) == (Status.PENDING, 0, None)
    assert await live(app, run) == [("A", "succeeded"), ("B", "ready")]
    async with app.worker():
        await run.result(60)
    assert seen == ["A", "B"]


@pytest.mark.spec("PLAN-4", "COST-1")
async def test_any_value_is_an_output_and_completed_says_more(app):
    plan = app.plan(TYPE, [Task("PLAIN"), Task("NONE"), Task("MORE"), Task("THREAD")])

    @plan.task("PLAIN")
    async def plain(task):
        return {"n": 1}

    @plan.task("NONE")
    async def none(task):
        task.cost(0.5)

    @plan.task("MORE")
    async def more(task):
        task.cost(0.25)
        return Completed([1, 2], cost=1.5)

    @plan.task("THREAD")
    def thread(task):
        return dict(task.outputs)

    async with app.worker():
        run = await app.start(plan)
        assert await run.result(60) == {"PLAIN": {"n": 1}, "NONE": None, "MORE": [1, 2]}
    assert [step.cost for step in await app.steps(run.id)] == [0, 500_000, 1_750_000, 0]
    assert (await app.get(run.id)).cost == 2.25


@dataclass
class Order:
    id: int
    at: datetime


async def test_values_come_back_in_their_types(app):
    """Params have the type of the plan's `params=`, outputs the types of the handlers' annotations."""
    plan = app.plan(TYPE, [Task("A"), Task("B")], params=Order)
    order, seen = Order(7, datetime.fromisoformat("2030-01-01T00:00:00+00:00")), []

    @plan.task("A")
    async def first(task) -> hf.Completed[Receipt]:
        seen.append(task.params)
        return Completed(Receipt(task.params.id))

    @plan.task("B")
    def second(task) -> Receipt:
        seen.append(task.outputs["A"])
        assert "B" not in task.outputs
        assert len(task.outputs) == 1
        return Receipt(2)

    async with app.worker():
        run = await app.start(plan, order)
        assert await run.result(60) == Receipt(2)
    assert seen == [order, Receipt(7)]


@pytest.mark.spec("FLOW-11")
async def test_the_idempotency_key_is_the_same_at_every_try_takeover_and_rewind(app):
    plan = app.plan(TYPE, [Task("A"), Task("B")], retry=hf.Backoff.fixed(30, attempts=5))
    keys = []

    async def work(task):
        keys.append((task.name, task.idempotency_key, task.run_id, task.tenant, task.number))
        if len(keys) < 3:
            raise ValueError("not yet")

    for name in "AB":
        plan.task(name)(work)
    async with app.worker():
        run = await app.start(plan, tenant="acme")
        await run.result(600)
        await app.rewind(run.id, "A")
        await run.result(600)
    a, b = f"{run.id}:A", f"{run.id}:B"
    assert [key for _, key, *_ in keys] == [a, a, a, b, a, b]
    assert set(keys) == {("A", a, run.id, "acme", 0), ("B", b, run.id, "acme", 1)}


async def test_logs_and_progress_go_out_with_the_commit_of_the_step(app):
    plan = app.plan(TYPE, [Task("A"), Task("B")])

    @plan.task("A")
    def first(task):
        task.log("packed", level="warning", boxes=2)
        task.progress(1, 2, "half")

    @plan.task("B")
    async def second(task):
        task.progress(2, 2)

    async with app.worker():
        run = await app.start(plan)
        await run.result(60)
    (row,) = [entry.data for entry in await app.trail(run.id) if entry.type == "log"]
    assert row == {"message": "packed", "level": "warning", "boxes": 2, "step": "A"}
    assert (await app.get(run.id)).progress == {"done": 2, "total": 2, "note": None}


@pytest.mark.spec("PLAN-2", "PLAN-14")
async def test_a_step_that_is_appended_is_executed_with_its_own_attempts(app):
    """Its handler is found by workflow and name, although the plan's list does not contain the step."""
    seen = []
    plan = fulfil(app, "A", seen=seen)

    @plan.task("EXTRA")
    async def extra(task):
        seen.append((task.name, task.number, task.attempt))
        raise ValueError("no")

    await app.publish()
    run = await app.start(plan)
    step = await app.append_step(run.id, "EXTRA", max_attempts=2)
    assert (step.seq, step.key, step.status) == (1, "EXTRA", "pending")
    with pytest.raises(Conflict):
        await app.append_step(run.id, "EXTRA")
    with pytest.raises(UsageError):
        await app.append_step(run.id, "MORE", max_attempts=0)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "exhausted")
    assert seen == ["A", ("EXTRA", 1, 1), ("EXTRA", 1, 2)]


@pytest.mark.spec("PLAN-14")
async def test_a_step_appended_while_the_last_one_runs_is_executed_too(app):
    seen = []
    plan = fulfil(app, "A", seen=seen)

    @plan.task("EXTRA")
    async def extra(task):
        seen.append(task.name)
        return "extra"

    plan.handlers.pop("A")

    @plan.task("A")
    async def appends(task):
        await app.append_step(task.run_id, "EXTRA")
        return "a"

    async with app.worker():
        run = await app.start(plan)
        assert await run.result(60) == "extra"
    assert seen == ["EXTRA"]


@pytest.mark.spec("PLAN-2")
async def test_after_the_start_the_definition_changes_nothing_for_a_run(app, world):
    """Steps are removed, reordered and added in the code, but the rows decide."""
    first = fulfil(app, "A", "B", "C")
    await app.publish()
    run, seen = await app.start(first), []
    other = hf.App(app.store, world=world)
    changed = fulfil(other, "C", "X", "B", "A", seen=seen)
    other.store.publish = _published_before
    async with other.worker():
        assert await app.result(run.id, 60) == 2
    assert seen == ["A", "B", "C"]
    assert changed.missing == ()


async def _published_before(definitions):
    """Publish nothing, as if these definitions were published already."""


@pytest.mark.spec("PLAN-12")
async def test_a_run_started_before_its_plan_was_published_gets_its_steps_at_the_first_claim(app):
    seen = []
    run = await app.start(TYPE, {"id": 1})
    assert await app.steps(run.id) == []
    plan = fulfil(app, "A", "B", seen=seen)
    async with app.worker():
        assert await run.result(60) == 1
    assert seen == ["A", "B"]
    found = await app.get(run.id)
    assert (found.kind, found.status) == ("plan", Status.SUCCEEDED)
    assert plan.type == found.type


@pytest.mark.spec("PLAN-12", "APPR-1")
async def test_a_run_started_before_publication_waits_at_a_gate_that_comes_first(app):
    run = await app.start(TYPE)
    plan = app.plan(TYPE, [Approval("OK", ask="Begin?"), Task("A")])

    @plan.task("A")
    async def work(task):
        return task.outputs["OK"].by

    async with app.worker():
        await until(app, run, Status.WAITING)
        await app.store.decide(run.id, approved=True, by="ada", tenant=ANY)
        assert await run.result(60) == "ada"
