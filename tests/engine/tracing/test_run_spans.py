"""Spans of one execution: the run under its start, steps under the run, and the user's spans under steps."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import App, Backoff, Fatal, StepFailed
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import outcome

pytestmark = pytest.mark.spec("OPS-4")

SECRET = "s3cr3t"


async def finished(app, workflow, params=None, **options):
    async with app.worker():
        run = await app.start(workflow, params, **options)
        await app.final(run.id)
    return run


async def test_a_start_a_run_and_its_steps_are_one_tree(app, spans):
    """Spans of users nest under the step: in async functions, and in sync ones, which run in threads."""

    def reserve():
        with spans.tracer.start_as_current_span("in a thread"):
            return 1

    async def charge():
        with spans.tracer.start_as_current_span("in the loop"):
            return await asyncio.to_thread(lambda: 2)

    @app.workflow("shop.order.v3")
    async def order(ctx):
        with spans.tracer.start_as_current_span("in the body"):
            await ctx.step("reserve", reserve)
        await ctx.step("charge", charge)
        return await ctx.step("later", lambda: charge())

    with spans.tracer.start_as_current_span("request"):
        run = await finished(app, order)
    assert spans.tree == sorted([
        ("request", ""),
        ("holdfast.start", "request"),
        ("run shop.order.v3", "holdfast.start"),
        ("in the body", "run shop.order.v3"),
        ("step reserve", "in the body"),
        ("in a thread", "step reserve"),
        ("step charge", "run shop.order.v3"),
        ("in the loop", "step charge"),
        ("step later", "run shop.order.v3"),
        ("in the loop", "step later"),
    ])  # fmt: skip
    assert len(spans.traces) == 1
    start, execution = spans.one("holdfast.start"), spans.one("run shop.order.v3")
    assert (start.kind, execution.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    said = dict(execution.attributes)
    assert said.pop("holdfast.worker").startswith("test:")
    assert said == {
        "holdfast.run.id": str(run.id), "holdfast.run.type": "shop.order.v3", "holdfast.workflow.version": 3,
        "holdfast.tenant": "default", "holdfast.run.attempt": 1, "holdfast.run.fence": 1,
        "holdfast.outcome": "succeeded", "messaging.system": "holdfast",
        "messaging.operation.name": "run", "messaging.operation.type": "process",
        "messaging.destination.name": "shop.order.v3", "messaging.message.id": str(run.id),
    }  # fmt: skip
    assert {one.status.status_code for one in spans.all} == {StatusCode.UNSET}


async def test_branches_have_their_own_steps(app, spans):
    """Each branch of a gather, and each item of a map, has its step under the run, and its spans there."""

    async def work(name):
        with spans.tracer.start_as_current_span(f"of {name}"):
            await asyncio.sleep(0.1)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("a", work, "a"), ctx.step("b", work, "b"))
        await ctx.map("each", work, ["x", "y"], key=lambda item: f"{SECRET}-{item}")

    await finished(app, order)
    body = "run shop.order.v1"
    assert spans.tree == sorted([
        ("holdfast.start", ""), (body, "holdfast.start"), ("step a", body), ("of a", "step a"),
        ("step b", body), ("of b", "step b"), ("step each", body), ("of x", "step each"), ("step each", body),
        ("of y", "step each"),
    ])  # fmt: skip


async def test_a_sync_workflow_has_the_same_tree(app, spans):
    """Its body runs in a thread, and its steps in others or on the loop."""

    def reserve():
        with spans.tracer.start_as_current_span("in a thread"):
            return 1

    async def charge():
        with spans.tracer.start_as_current_span("in the loop"):
            return 2

    @app.workflow("shop.order.v1")
    def order(ctx):
        with spans.tracer.start_as_current_span("in the body"):
            ctx.step("reserve", reserve)
        ctx.sleep(60)
        ctx.step("charge", charge)

    await finished(app, order)
    body = "run shop.order.v1"
    assert spans.tree == sorted([
        ("holdfast.start", ""), (body, "holdfast.start"), ("in the body", body),
        ("step reserve", "in the body"), ("in a thread", "step reserve"),
        ("wait sleep", "holdfast.start"), (body, "holdfast.start"),
        ("in the body", body), ("step charge", body), ("in the loop", "step charge"),
    ])  # fmt: skip


async def test_each_try_is_a_span_with_the_kind_and_type_of_its_error(app, spans):
    """Tries in place are in one execution; a later try is in the next one. No text of an error is shown."""

    async def charge():
        raise ConnectionError(SECRET)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("charge", charge, retry=Backoff.fixed(0.1, attempts=2))
        except StepFailed as error:
            raise Fatal(SECRET) from error

    run = await finished(app, order)
    assert await outcome(app, run) == ("failed", "fatal")
    first, second = spans.named("step charge")
    assert [one.attributes["holdfast.step.attempt"] for one in (first, second)] == [1, 2]
    assert [one.attributes["holdfast.error.kind"] for one in (first, second)] == ["error", "exhausted"]
    assert {one.attributes["error.type"] for one in (first, second)} == {"ConnectionError"}
    assert {one.status.status_code for one in (first, second)} == {StatusCode.ERROR}
    execution = spans.one("run shop.order.v1")
    assert (execution.status.status_code, execution.status.description) == (StatusCode.ERROR, "fatal: Fatal")
    assert [one.name for one in execution.events] == ["holdfast.retry"]
    assert SECRET not in "".join(one.to_json() for one in spans.all)


async def test_a_step_that_takes_too_long_has_failed(app, spans):
    """Its span ends at the timeout, with the kind of the recorded error."""

    async def slow():
        await asyncio.sleep(100)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("slow", slow, timeout=1, retry=Backoff.none())

    await finished(app, order)
    assert spans.one("step slow").attributes["holdfast.error.kind"] == "timeout"


async def test_a_step_that_is_stopped_is_neither_done_nor_failed(app, spans):
    async def slow():
        await asyncio.sleep(1000)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("slow", slow)

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.cancel(run.id)
        await asyncio.sleep(60)
    step, execution = spans.one("step slow"), spans.one("run shop.order.v1")
    assert (step.attributes["holdfast.outcome"], step.status.status_code) == ("stopped", StatusCode.UNSET)
    assert execution.attributes["holdfast.outcome"] == "cancelled"
    assert spans.parent(step) == "run shop.order.v1"


async def test_no_value_of_a_user_is_in_a_span(app, spans):
    """Neither params, results, payloads, labels, topics nor keys of starts, steps and messages."""

    @app.workflow("shop.child.v1")
    async def child(ctx, params):
        return params

    @app.workflow("shop.order.v1")
    async def order(ctx, params):
        await ctx.step("charge", lambda: SECRET, key=f"charge:{SECRET}")
        ctx.send("mail", SECRET, key=SECRET)
        ctx.emit(SECRET, SECRET)
        await ctx.await_event(SECRET, key=f"wait:{SECRET}")
        return await ctx.call(child, SECRET, key=f"kid:{SECRET}", labels={"a": SECRET})

    @app.sink("mail")
    async def mail(delivery):
        raise ValueError(delivery.payload)

    async with app.worker():
        run = await app.start(order, SECRET, key=SECRET, labels={"a": SECRET}, limit_key=SECRET)
        assert await outcome(app, run) == ("succeeded", SECRET)
        await asyncio.sleep(60)
    assert spans.names["send mail"] > 1
    assert "wait event" in spans.names
    assert SECRET not in json.dumps([one.to_json() for one in spans.all])


async def test_a_transaction_is_a_step(spans, tmp_path, world):
    """Its function runs inside the commit, and its spans are in that of the step."""
    app = App(SqliteStore(str(tmp_path / "h.db"), clock=world.now, inline=True), name="test", world=world)

    def pay(connection):
        with spans.tracer.start_as_current_span("in the commit"):
            return 1

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.transaction(pay)

    await finished(app, order)
    assert ("step pay", "run shop.order.v1") in spans.tree
    assert ("in the commit", "step pay") in spans.tree


async def test_a_hook_is_not_inside_a_run(app, spans):
    """One task calls hooks for many runs: their spans would be in the wrong one."""

    @app.on("run.succeeded")
    async def hook(notice):
        with spans.tracer.start_as_current_span("in a hook"):
            pass

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    await finished(app, order)
    assert spans.parent(spans.one("in a hook")) is None
