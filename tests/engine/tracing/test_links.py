"""One trace over parks, attempts and workers: executions belong to the start, and link to the one before."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from holdfast import Approval, Backoff, Sleep, Task, Wait, Waiting
from holdfast.records import SECOND
from tests.engine.kit import outcome, process, until
from tests.engine.tracing.kit import text

pytestmark = pytest.mark.spec("OPS-4")

RUN = "run shop.order.v1"
NANOS = 1000


@pytest.mark.slow
async def test_an_execution_links_to_the_one_that_parked(app, spans, world):
    """All belong to the start. Each wait has a span from its opening to its end, made by the next one."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(3600)
        await ctx.await_event("paid")
        await ctx.approval("ship", timeout=60)

    async with app.worker():
        begun_at = world.now()
        run = await app.start(order)
        await asyncio.sleep(4000)
        emitted_at = world.now()
        await app.emit("paid")
        assert (await outcome(app, run))[0] == "succeeded"
    first, second, third, fourth = spans.named(RUN)
    assert [spans.links(one) for one in (first, second, third, fourth)] == [[], [first], [second], [third]]
    assert {spans.parent(one) for one in spans.named(RUN)} == {"holdfast.start"}
    assert [one.attributes["holdfast.outcome"] for one in (first, fourth)] == ["waiting", "succeeded"]
    assert len(spans.traces) == 1
    names = ("wait sleep", "wait event", "wait approval")
    waits = [spans.one(name) for name in names]  # one each, although every execution replays them
    slept, event, gate = [(one.end_time - one.start_time) / 1e9 for one in waits]
    assert slept == pytest.approx(3600, abs=2)
    assert gate == pytest.approx(60, abs=2)
    assert waits[0].start_time >= begun_at * NANOS
    assert waits[1].end_time == pytest.approx(emitted_at * NANOS, abs=2 * SECOND * NANOS)
    assert event == pytest.approx(400, abs=5)
    assert {spans.parent(one) for one in waits} == {"holdfast.start"}


async def test_a_wait_that_ends_while_others_work_has_its_span_at_once(app, spans):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("work", asyncio.sleep, 500), ctx.await_event("paid"))

    async with app.worker(lease=30):
        run = await app.start(order)
        await asyncio.sleep(100)
        await app.emit("paid")
        assert (await outcome(app, run))[0] == "succeeded"
    assert spans.names == {"holdfast.start": 1, RUN: 1, "step work": 1, "wait event": 1}


async def test_a_later_try_links_to_the_failed_execution(app, spans):
    """A body that fails is retried: in place in the same execution, and later in one that links to it."""
    tries = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(60, attempts=3))
    async def order(ctx):
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("no")

    async with app.worker():
        assert (await outcome(app, await app.start(order)))[0] == "succeeded"
    first, second = spans.named(RUN)
    assert spans.links(second) == [first]
    assert (first.status.status_code, first.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert second.status.status_code is StatusCode.UNSET


@pytest.mark.slow
async def test_another_worker_continues_the_trace(app, spans):
    """A worker that is killed never ends its span. The next execution belongs to the start all the same."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("one", lambda: 1)
        await ctx.step("long", asyncio.sleep, 20)

    run = await app.start(order)
    first = await process(app, 1, lease=10)
    await asyncio.sleep(5)
    first.kill()
    await process(app, 2, lease=10)
    assert (await until(app, run)).status == "succeeded"
    (second,) = spans.named(RUN)
    assert (spans.parent(second), spans.links(second)) == ("holdfast.start", [])
    assert second.attributes["holdfast.run.fence"] > 1
    lost = [one for one in spans.all if one.parent and one.parent.span_id not in
            {known.context.span_id for known in spans.all}]  # fmt: skip
    assert [one.name for one in lost] == ["step one"]  # of the execution that was killed
    assert [one.name for one in spans.links(lost[0])] == ["holdfast.start"]
    assert len(spans.traces) == 1


async def test_a_child_is_in_the_trace_of_its_parent(app, spans):
    """Its start is a span of the parent's execution, and its execution links to that span."""

    @app.workflow("shop.child.v1")
    async def child(ctx):
        return await ctx.step("grow", lambda: 7)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.start(child, key="beside")
        return await ctx.call(child)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("succeeded", 7)
        await asyncio.sleep(10)
    top, *starts = spans.named("holdfast.start")
    assert {spans.parent(one) for one in starts} == {RUN}
    assert {one.attributes["messaging.destination.name"] for one in starts} == {"shop.child.v1"}
    children = spans.named("run shop.child.v1")
    assert sorted(text(spans.links(one)[0]) for one in children) == sorted(map(text, starts))
    assert {one.parent.span_id for one in children} == {top.context.span_id}
    assert len(spans.traces) == 1
    assert spans.names["wait child"] == 1


async def test_the_next_run_of_a_chain_is_in_the_trace(app, spans):
    @app.workflow("shop.order.v1")
    async def order(ctx, left):
        if left:
            ctx.continue_as(left - 1)

    async with app.worker():
        run = await app.start(order, 2)
        await app.final(run.id)
    first, second, third = spans.named(RUN)
    assert [spans.links(one) for one in (first, second, third)] == [[], [first], [second]]
    assert {spans.parent(one) for one in (first, second, third)} == {"holdfast.start"}


async def test_a_run_without_a_starter_has_one_trace(app, spans, monkeypatch):
    """Its first execution is the root; later ones and children belong to it."""

    @app.workflow("shop.child.v1")
    async def child(ctx):
        return 1

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(60)
        await ctx.call(child)

    await app.publish()
    async with NoSpans(monkeypatch):
        run = await app.start(order)
    with spans.tracer.start_as_current_span("of the worker's program"):
        async with app.worker():
            assert (await outcome(app, run))[0] == "succeeded"
    first, second, third = spans.named(RUN)
    assert (first.parent, spans.parent(second), spans.parent(third)) == (None, RUN, RUN)
    assert {one.parent.span_id for one in (second, third)} == {first.context.span_id}
    assert [spans.links(one) for one in (second, third)] == [[], [second]]
    assert spans.one("run shop.child.v1").context.trace_id == first.context.trace_id
    assert len(spans.traces) == 2  # and that of the worker's program


class NoSpans:
    """Start a run as a program without OpenTelemetry does."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch.context()

    async def __aenter__(self):
        from opentelemetry import trace

        self._patch.__enter__().setattr(trace, "_TRACER_PROVIDER", None)

    async def __aexit__(self, *error):
        self._patch.__exit__(*error)


@pytest.mark.parametrize("given", [True, False])
async def test_a_run_that_is_sampled_out_has_no_span_anywhere(app, configure, given):
    """The decision of the start, or of the first execution, holds for all that follow."""
    spans = configure(sampler=ALWAYS_OFF)

    @app.workflow("shop.child.v1")
    async def child(ctx):
        with spans.tracer.start_as_current_span("mine"):
            return 1

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("one", lambda: 1)
        await ctx.sleep(60)
        await ctx.call(child)

    if not given:
        run = await app.start(order)
        spans = configure(sampler=ParentBased(TraceIdRatioBased(0)))
    async with app.worker():
        run = await app.start(order) if given else run
        await asyncio.sleep(1)
        spans = configure(sampler=ParentBased(TraceIdRatioBased(1.0)))  # it would sample every new trace
        assert (await outcome(app, run))[0] == "succeeded"
    assert spans.names == {}


@pytest.mark.slow
async def test_the_waits_of_a_plan_have_spans(app, spans):
    """A plan: tasks are steps, gates, events and sleeps are waits, and so is a task that waits."""
    plan = app.plan(
        "shop.plan.v1", [Task("ASK"), Sleep("REST", 600), Wait("PAID", "paid"), Approval("OK"), Task("SHIP")]
    )

    @plan.task("ASK")
    async def ask(task):
        with spans.tracer.start_as_current_span("mine"):
            pass
        return Waiting("answer") if task.reason == "start" else "asked"

    @plan.task("SHIP")
    def ship(task):
        with spans.tracer.start_as_current_span("in a thread"):
            return task.outputs["ASK"]

    async with app.worker():
        run = await app.start(plan)
        await asyncio.sleep(100)
        await app.emit("answer")
        await asyncio.sleep(1000)
        await app.emit("paid")
        await asyncio.sleep(100)
        await app.approve(run.id, "OK", by="me")
        assert await outcome(app, run) == ("succeeded", "asked")
    body = "run shop.plan.v1"
    assert spans.tree == sorted([
        ("holdfast.start", ""), (body, "holdfast.start"), ("step ASK", body), ("mine", "step ASK"),
        (body, "holdfast.start"), ("step ASK", body), ("mine", "step ASK"), ("wait task", "holdfast.start"),
        (body, "holdfast.start"), ("step SHIP", body), ("in a thread", "step SHIP"),
        ("wait sleep", "holdfast.start"), ("wait event", "holdfast.start"),
        ("wait approval", "holdfast.start"),
    ])  # fmt: skip
    first, second, third = spans.named(body)
    assert [spans.links(one) for one in (second, third)] == [[first], [second]]
    slept = spans.one("wait sleep")
    assert (slept.end_time - slept.start_time) / 1e9 == pytest.approx(600, abs=2)


async def test_a_task_that_is_tried_again_has_a_span_for_each_try(app, spans):
    from holdfast import Dead, Retry

    plan = app.plan("shop.plan.v1", [Task("A"), Task("B")])
    answers = [Retry(0.1, "busy"), ValueError("no"), "done"]

    @plan.task("A")
    async def first(task):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @plan.task("B")
    async def second(task):
        return Dead("never")

    async with app.worker():
        assert await outcome(app, await app.start(plan)) == ("failed", "fatal")
    kinds = [one.attributes.get("holdfast.error.kind") for one in spans.named("step A")]
    assert kinds == ["error", "error", None]
    assert spans.one("step B").attributes["holdfast.error.kind"] == "fatal"
    assert {spans.parent(one) for one in spans.named("step A")} == {"run shop.plan.v1"}
