"""Keywords of `ctx.step`: options of the step, or arguments of its function; and the facts of a run."""

from __future__ import annotations

import inspect
from functools import partial, wraps

import pytest

from holdfast import App, Backoff, StepOptions, Task, UsageError, WorkerOptions, Workflow
from holdfast.engine.app.new_run import CHILD_OPTIONS, OPTIONS
from holdfast.engine.app.schedules import OPTIONS as SCHEDULE_OPTIONS
from holdfast.engine.code.context import Context
from holdfast.engine.options import ChildOptions, RunOptions, StartOptions, TransactionOptions
from holdfast.engine.worker.worker import Worker
from holdfast.testing import Rehearsal


async def fetch(url, timeout=3, *, name="x", fn=None):
    return [url, timeout, name, fn]


def passed_on(function):
    @wraps(function)
    def called(*args, **kwargs):
        return function(*args, **kwargs)

    return called


class Api:
    def get(self, url, retry=0):
        return [url, retry]

    def put(self, url, **fields):
        return [url, fields]


async def answer(app, step, *, is_sync=False):
    """Return the result of a workflow with one step, or the message of its failure."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await step(ctx)

    @app.workflow("shop.sync.v1")
    def sync_order(ctx):
        return step(ctx)

    async with app.worker():
        run = await app.start(sync_order if is_sync else order)
        found = await app.final(run.id, 3600)
        return found.result if found.error is None else found.error.message


@pytest.mark.spec("FLOW-27")
@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda ctx: ctx.step("a", fetch, url="u"), ["u", 3, "x", None]),
        (lambda ctx: ctx.step("a", fetch, "u", name="n", fn="f"), ["u", 3, "n", "f"]),
        (lambda ctx: ctx.step("a", fetch, "u", name="n", key="k"), ["u", 3, "n", None]),
        (lambda ctx: ctx.step("a", fetch, "u", 7, timeout=5), ["u", 7, "x", None]),
        (lambda ctx: ctx.step("a", partial(fetch, "u", timeout=7), timeout=5), ["u", 7, "x", None]),
        (lambda ctx: ctx.step("a", Api().get, "u", 7, retry=Backoff.fixed(1)), ["u", 7]),
        (lambda ctx: ctx.step("a", Api().put, "u", timeout=5, sku=1), ["u", {"sku": 1}]),
        (lambda ctx: ctx.step("a", lambda n=1: n, key="k"), 1),
        (lambda ctx: ctx.map("a", fetch, ["u"], timeout=5), [["u", 3, "x", None]]),
    ],
)
async def test_a_keyword_is_an_option_of_the_step_or_an_argument_of_its_function(
    app, step, expected, is_sync
):
    assert await answer(app, step, is_sync=is_sync) == expected


@pytest.mark.spec("FLOW-27")
@pytest.mark.parametrize(
    "step",
    [
        lambda ctx: ctx.step("a", fetch, "u", timeout=5),
        lambda ctx: ctx.step("a", partial(fetch, "u"), timeout=5),
        lambda ctx: ctx.step("a", passed_on(fetch), "u", timeout=5),
        lambda ctx: ctx.step("a", Api().get, "u", retry=Backoff.fixed(1)),
        lambda ctx: ctx.step("a", lambda key="": key, key="k"),
    ],
)
async def test_a_keyword_that_is_an_option_and_an_argument_is_refused_in_one_line(app, step):
    said = await answer(app, step)

    assert "is an option of ctx.step and an argument of" in said
    assert "by position, or in partial(" in said


@pytest.mark.spec("FLOW-27")
async def test_a_keyword_that_is_neither_is_refused_and_not_retried(app):
    calls = []

    async def count(one):
        calls.append(one)

    said = await answer(app, lambda ctx: ctx.step("a", count, 1, retries=5))

    assert "'retries' is no argument of count that is left to give, and no option of ctx.step" in said
    assert calls == []


def test_a_rehearsed_step_takes_keywords_too():
    app = App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("a", fetch, "u", name="n", key="k")

    with Rehearsal(app, replace={fetch: lambda url, name: [url, name]}) as rehearsal:
        assert rehearsal.start(order).result() == ["u", "n"]


@pytest.mark.spec("FLOW-27")
async def test_code_knows_the_type_the_attempts_and_the_labels_of_its_run(app):
    read = {}

    @app.workflow("shop.code.v1")
    async def code(ctx):
        read["code"] = ctx.type, ctx.max_attempts, ctx.labels

    @app.workflow("shop.sync.v1", retry=Backoff.fixed(1, attempts=4))
    def sync(ctx):
        read["sync"] = ctx.type, ctx.max_attempts, ctx.labels

    plan = app.plan("shop.plan.v1", [Task("A"), Task("B", attempts=2)])

    @plan.task("A")
    async def first(task):
        read["first"] = task.type, task.max_attempts, task.labels

    @plan.task("B")
    def second(task):
        read["second"] = task.type, task.max_attempts, task.labels

    async with app.worker():
        await (await app.start(code, labels={"a": "1"}, max_attempts=7)).result(60)
        await (await app.start(sync)).result(60)
        await (await app.start(plan, max_attempts=5)).result(60)

    assert read == {
        "code": ("shop.code.v1", 7, {"a": "1"}),
        "sync": ("shop.sync.v1", 4, {}),
        "first": ("shop.plan.v1", 5, {}),
        "second": ("shop.plan.v1", 2, {}),
    }


@pytest.mark.spec("FLOW-27")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (StartOptions, OPTIONS),
        (ChildOptions, CHILD_OPTIONS),
        (RunOptions, SCHEDULE_OPTIONS),
        (WorkerOptions, [*inspect.signature(Worker).parameters][4:]),
        (StepOptions, [*inspect.signature(Context.step).parameters][4:-1]),
        (TransactionOptions, [*inspect.signature(Context.transaction).parameters][3:]),
    ],
)
def test_the_named_options_are_those_that_the_code_takes(options, names):
    assert set(options.__annotations__) == {name for name in names if name != "sinks"}


def test_a_workflow_may_be_named_with_its_types_at_run_time():
    assert Workflow[int, str].__origin__ is Workflow


def test_a_usage_error_is_raised_before_anything_is_recorded():
    from holdfast.engine.code.keywords import check_options

    with pytest.raises(UsageError, match="step 'a': timeout= is an option"):
        check_options("a", fetch, ("u",), (None, None, 5, None))
