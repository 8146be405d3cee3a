"""Plans: a fixed list of steps, executed strictly in order, by the rows and by nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import pytest

import holdfast as hf
from holdfast import (
    Approval,
    BadType,
    Completed,
    Conflict,
    Plan,
    Sleep,
    Status,
    Task,
    UsageError,
    Wait,
    Waiting,
)
from holdfast.engine.plans.outcomes import output_codec
from holdfast.lifecycle import StepKind
from tests.engine.kit import outcome, trail, until

TYPE = "shop.fulfil.v1"


def fulfil(app, *names, seen=None, type_=TYPE, **options):
    """A plan of tasks that each add their name, and whose output is their number."""
    plan = app.plan(type_, [Task(name) for name in names], **options)
    for name in names:

        @plan.task(name)
        async def work(task):
            if seen is not None:
                seen.append(task.name)
            return task.number

    return plan


async def live(app, run):
    """Name and status of all steps, in order."""
    return [(step.key, str(step.status)) for step in await app.steps(run.id)]


# -- definitions ---------------------------------------------------------------------------


@pytest.mark.spec("PLAN-11")
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "plan shop.fulfil.v1 has no steps"),
        ([Task("")], "a step without a name"),
        ([Task("  ")], "a step without a name"),
        ([Task(None)], "a step without a name"),
        ([Task("A"), Sleep("B", 1), Task("A")], "two steps 'A'"),
        ([Task("A"), "B"], "'B' is no step"),
        ("A", "is no list of steps"),
        (Task("A"), "is no list of steps"),
        ([Task("A", attempts=0)], "attempts is 0: at least 1"),
        ([Sleep("NAP", -1)], "duration is -1 s"),
        ([Wait("W", "t", timeout=float("inf"))], "timeout is inf s"),
        ([Wait("W", "")], "topic ''"),
        ([Approval("OK", on_timeout="shrug")], "on_timeout='shrug': 'reject' or 'approve'"),
        ([Approval("OK", ask=3)], "the question is text"),
    ],
)
def test_a_plan_that_could_not_be_lived_is_refused_when_it_is_defined(app, steps, said):
    with pytest.raises(UsageError, match=None) as refused:
        app.plan(TYPE, steps)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert app.workflows == {}


@pytest.mark.spec("PLAN-11")
@pytest.mark.parametrize("type_", ["shop.fulfil.v0", "shop.fulfil", "shop.fulfil.v-1"])
def test_a_version_below_one_is_refused(app, type_):
    with pytest.raises(BadType):
        app.plan(type_, [Task("A")])


def test_handlers_are_checked_when_they_are_named(app):
    plan = app.plan(TYPE, [Task("A"), Approval("OK")])

    @plan.task("A")
    async def work(task):
        return 1

    for name, function, said in [
        ("A", work, "task 'A' has a handler already"),
        ("OK", work, "is of kind approval: no handler is called for it"),
        ("B", lambda _, __: 1, "takes one argument"),
        ("B", 3, "is no function"),
    ]:
        with pytest.raises(UsageError) as refused:
            plan.task(name)(function)
        assert said in str(refused.value)
    with pytest.raises(UsageError, match="needs its task's name"):
        plan.task(work)
    with pytest.raises(UsageError, match="defined twice"):
        app.plan(TYPE, [Task("A")])
    assert plan.missing == ()
    assert repr(plan) == "<plan shop.fulfil.v1>"


@dataclass
class Receipt:
    number: int


def test_the_annotation_of_a_handler_says_what_its_output_is():
    def typed(task) -> hf.Completed[Receipt] | hf.Waiting: ...
    def valued(task) -> Receipt | hf.Retry | hf.Dead: ...
    def loose(task) -> hf.Outcome: ...
    def bare(task) -> hf.Completed | hf.Waiting: ...
    def never(task) -> hf.Dead: ...

    for function in (typed, valued):
        assert output_codec(function).decode('{"number": 1}', "it") == Receipt(1)
    for function in (loose, bare, never, lambda _: 1):
        assert output_codec(function).decode('{"number": 1}', "it") == {"number": 1}


@pytest.mark.spec("PLAN-12")
async def test_a_plan_is_published_with_its_steps_and_defaults(app):
    plan = app.plan(
        TYPE,
        [
            Task("A", attempts=5),
            Approval("OK", ask="Ship?", data={"n": 1}, timeout=60),
            Wait("W", "t"),
            Sleep("S", 9),
        ],
        retry=hf.Backoff.fixed(1, attempts=4),
        timeout=hf.days(1),
        budget=2.5,
        description="From order to parcel.",
    )
    assert isinstance(plan, Plan)
    await app.publish()
    (found,) = await app.store.definitions()
    assert found == plan.definition()
    assert (found.kind, found.max_attempts, found.timeout_seconds) == ("plan", 4, 86400)
    assert (found.budget, found.description) == (2_500_000, "From order to parcel.")
    assert [(one.name, one.kind, one.max_attempts, one.timeout_seconds) for one in found.steps] == [
        ("A", StepKind.TASK, 5, None),
        ("OK", StepKind.APPROVAL, None, 60),
        ("W", StepKind.EVENT, None, None),
        ("S", StepKind.SLEEP, None, 9),
    ]


@pytest.mark.spec("PLAN-12")
async def test_the_same_version_with_other_steps_stops_the_worker_with_one_line(app, world):
    fulfil(app, "A", "B")
    await app.publish()
    other = hf.App(app.store, world=world)
    fulfil(other, "A", "C")
    with pytest.raises(Conflict) as refused:
        async with other.worker():
            pass
    assert TYPE in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(Conflict):
        await other.publish()


# -- running -------------------------------------------------------------------------------


@pytest.mark.spec("PLAN-1")
async def test_a_start_inserts_all_steps_and_lists_them_in_order(app):
    names = [f"S{n}" for n in range(12)]  # S10 stands behind S9, not behind S1
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
    """While a handler runs all before it have succeeded and all after it are pending."""
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
    """Params as the plan says, outputs as the handlers' annotations say."""
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
    """Its handler is found by workflow and name, though the plan's list does not have it."""
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
    """Steps removed, reordered and added in the code: the rows decide."""
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
    """As if the definitions were those that are there."""


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
        await app.store.decide(run.id, approved=True, by="ada")
        assert await run.result(60) == "ada"


@pytest.mark.spec("PLAN-10")
async def test_attempts_are_the_steps_else_the_starts_else_the_plans(app):
    plan = app.plan(TYPE, [Task("A", attempts=7), Task("B")], retry=hf.Backoff.fixed(1, attempts=4))
    await app.publish()
    for options, expected in [({}, [7, 4]), ({"max_attempts": 2}, [7, 2])]:
        run = await app.start(plan, **options)
        assert [step.max_attempts for step in await app.steps(run.id)] == expected
    app.plan("shop.other.v1", [Task("A")])
    await app.publish()
    run = await app.start("shop.other.v1")
    assert [step.max_attempts for step in await app.steps(run.id)] == [3]


@pytest.mark.spec("APPR-1", "APPR-4")
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
        (gate,) = await app.store.approvals()
        assert (gate.step, gate.ask, gate.data) == ("MANAGER", "Ship?", {"total": 5})
        await app.store.decide(run.id, approved=approved, by="ada", comment="fine")
        expected = ("succeeded", "fine") if approved else ("failed", "rejected")
        assert await outcome(app, run) == expected
    assert seen == (["A", "B"] if approved else ["A"])


async def test_an_awaited_event_that_is_there_already_costs_no_new_claim(app):
    """What was settled on the way is an output like any other."""
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
        await app.resume(run.id)
        assert (await app.final(run.id, 60)).status is Status.SUCCEEDED


async def test_a_plan_is_a_child_like_any_other(app):
    plan = fulfil(app, "A", "B")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.call(plan, {"id": 1})

    async with app.worker():
        assert await (await app.start(order)).result(60) == 1


async def test_waiting_for_ever_is_refused():
    with pytest.raises(UsageError, match="would wait for ever"):
        Waiting()
    with pytest.raises(UsageError, match=r"a list of hf\.Message"):
        Completed(1, outbound=["mail"])
