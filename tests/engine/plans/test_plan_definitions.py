"""Definitions of plans: checked, refused and published."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast import Approval, BadType, Completed, Conflict, Plan, Sleep, Task, UsageError, Wait, Waiting
from holdfast.engine.plans.outcomes import output_codec
from holdfast.lifecycle import StepKind
from holdfast.stores.memory import MemoryStore
from tests.engine.plans.plan_helpers import TYPE, Receipt, fulfil


@pytest.mark.spec("PLAN-11")
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "plan shop.fulfil.v1 has no steps"),
        ([Task("")], "a step without a name"),
        ([Task("  ")], "a step without a name"),
        ([Task(None)], "a step without a name"),
        ([Task("A"), Sleep("B", 1), Task("A")], "two steps 'A'"),
        ([Task(f"T{n}") for n in range(10_001)], "has 10,001 steps, the limit is 10,000"),
        ([Task("A"), "B"], "'B' is not a step"),
        ("A", "is not a list of steps"),
        (Task("A"), "is not a list of steps"),
        ([Task("A", attempts=0)], "attempts is 0: give a whole number from 1"),
        ([Sleep("NAP", -1)], "duration is -1 s"),
        ([Wait("W", "t", timeout=float("inf"))], "timeout is inf s"),
        ([Wait("W", "")], "topic ''"),
        ([Approval("OK", on_timeout="shrug")], "on_timeout='shrug': give 'reject' or 'approve'"),
        ([Approval("OK", ask=3)], "give text; other values go into data="),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_invalid_plan_is_refused_when_it_is_defined(app, steps, said):
    with pytest.raises(UsageError, match=None) as refused:
        app.plan(TYPE, steps)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert app.workflows == {}


@pytest.mark.spec("PLAN-11")
def test_a_plan_of_very_many_steps_costs_little_to_define(app):
    """The cost is linear: twice as many steps cost twice as much."""
    looks = []

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            looks.append(1)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    plan = app.plan(TYPE, [Task(Name(f"T{n}")) for n in range(2000)])
    assert len(plan.missing) == 2000
    assert len(looks) < 20_000


@pytest.mark.spec("PLAN-11", "PLAN-14")
@pytest.mark.parametrize("name", ["", "   ", "\t\n", None, 5, "a\0b"], ids=repr)
async def test_a_step_without_a_name_is_not_appended(app, name):
    plan = fulfil(app, "A")
    await app.publish()
    run = await app.start(plan)
    with pytest.raises(UsageError, match=r"is not a name for a plan's step|is not a step's name or key"):
        await app.append_step(run.id, name)
    assert [step.key for step in await app.steps(run.id)] == ["A"]


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
        ("OK", work, "has kind approval: only tasks have handlers"),
        ("B", lambda _, __: 1, "takes one argument"),
        ("B", 3, "is not a function"),
        ("  ", work, "'  ' is not a name for a plan's step"),
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


@pytest.mark.spec("PLAN-12", "START-1")
async def test_a_plan_that_is_started_is_published_first(app, world):
    """A run has all its steps from the start. A plan is published once for each store; code workflows are
    not.
    """
    plan = fulfil(app, "A", "B")

    @app.workflow("shop.code.v1")
    async def code(ctx):
        return 1

    published, publish = [], app.store.publish

    async def count(definitions):
        published.append([one.type for one in definitions])
        await publish(definitions)

    app.store.publish = count
    await app.start(code)
    runs = [await app.start(plan), await app.start(TYPE), *await app.start_many([(plan, None), (plan, None)])]
    for run in runs:
        assert [step.key for step in await app.steps(run.id)] == ["A", "B"]
        assert (await app.get(run.id)).kind == "plan"
    assert published == [[TYPE]]
    app.store.publish = publish
    app.store = MemoryStore(clock=world.now)
    run = await app.start(plan)
    assert len(await app.steps(run.id)) == 2


@pytest.mark.spec("PLAN-12", "SCHED-1")
async def test_a_plan_that_is_scheduled_is_published_too(app):
    await app.schedule("nightly", fulfil(app, "A"), every=60)
    run = await app.fire_schedule("nightly")
    assert [step.key for step in await app.steps(run.id)] == ["A"]


@pytest.mark.spec("PLAN-12")
async def test_a_start_of_a_version_that_has_other_steps_in_the_store_is_refused(app, world):
    fulfil(app, "A", "B")
    await app.publish()
    other = hf.App(app.store, world=world)
    plan = fulfil(other, "A", "C")
    for _ in range(2):
        with pytest.raises(Conflict, match=TYPE):
            await other.start(plan)
    assert list(await app.list()) == []


async def test_waiting_for_ever_is_refused():
    with pytest.raises(UsageError, match="would wait for ever"):
        Waiting()
    with pytest.raises(UsageError, match=r"a list of hf\.Message"):
        Completed(1, outbound=["mail"])


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
