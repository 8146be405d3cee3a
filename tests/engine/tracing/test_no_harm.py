"""Traces change nothing about runs: without an SDK nothing is imported, and a failing SDK fails no run."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan

from holdfast import Task
from holdfast.engine.code.execution import Execution
from holdfast.engine.tracing import provider
from holdfast.engine.tracing.run_spans import RunSpans
from tests.engine.kit import outcome

pytestmark = pytest.mark.spec("OPS-4")

PROGRAM = """
import asyncio, logging, sys
{before}
import holdfast as hf

app, seen = hf.App("memory://"), []
logging.getLogger().addHandler(logging.StreamHandler())
logging.getLogger().handlers[0].addFilter(hf.LogContext())

@app.workflow("shop.child.v1")
async def child(ctx):
    return 1

@app.workflow("shop.order.v1")
async def order(ctx):
    seen.append(ctx._run.spans)
    await ctx.step("one", lambda: 1)
    ctx.send("mail", 1)
    await ctx.sleep(0.01)
    return await ctx.call(child)

@app.sink("mail")
async def mail(delivery):
    logging.warning("mail")

async def main():
    async with app.worker():
        print(await (await app.start(order)).result(10))

asyncio.run(main())
print({{None}} == set(seen), sorted(name for name in sys.modules if name.startswith("opentelemetry")) {check})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "check"), [("", "== []"), ("import opentelemetry.trace", "!= []")], ids=["nothing", "api"]
)
def test_without_an_sdk_nothing_is_imported_and_nothing_recorded(before, check):
    """The same holds when the API alone is there, which other libraries import."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(before=before, check=check)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.stdout.split("\n")[:2], done.stderr) == (["1", "True True"], "mail\n")


class Broken(SpanProcessor, Sampler):
    """A sampler and a span processor that raise, each in one place."""

    def __init__(self, where):
        self.where = where

    def should_sample(self, *args, **kwargs):
        if self.where == "sample":
            raise RuntimeError("the sampler is broken")
        return ALWAYS_ON.should_sample(*args, **kwargs)

    def get_description(self):
        return "broken"

    def on_start(self, span, parent_context=None):
        if self.where == "start":
            raise RuntimeError("on_start is broken")

    def on_end(self, span):
        if self.where == "end":
            raise RuntimeError("on_end is broken")

    def shutdown(self):
        pass


@pytest.mark.parametrize("where", ["sample", "start", "end"])
async def test_an_sdk_that_raises_fails_no_run(app, configure, caplog, monkeypatch, where):
    """Runs, steps, plans, children and messages do what they do without it. It is logged, not for ever."""
    monkeypatch.setattr(provider, "_told", set())
    broken = Broken(where)
    spans = configure(sampler=broken)
    spans.provider.add_span_processor(broken)
    got = []

    @app.workflow("shop.child.v1")
    async def child(ctx):
        return 1

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for number in range(20):
            await ctx.step("one", lambda number=number: number)
        ctx.send("mail", 1)
        await ctx.sleep(60)
        return await ctx.call(child)

    @app.sink("mail")
    def mail(delivery):
        got.append(delivery.payload)

    plan = app.plan("shop.plan.v1", [Task("A")])

    @plan.task("A")
    def task(_):
        return 2

    async with app.worker():
        run, other = await app.start(order), await app.start(plan)
        assert [await outcome(app, run), await outcome(app, other)] == [("succeeded", 1), ("succeeded", 2)]
        await asyncio.sleep(60)
    assert got == [1]
    lines = [one for one in caplog.records if one.name == "holdfast.tracing"]
    assert 1 <= len(lines) <= 10


class Mute(NonRecordingSpan):
    """A span that cannot tell its context."""

    def get_span_context(self):
        raise RuntimeError("the span is broken")


class MuteTracer:
    def start_span(self, *_, **__):
        return Mute(INVALID_SPAN_CONTEXT)


async def test_spans_that_cannot_tell_their_context_fail_no_run(app, configure, monkeypatch):
    """Neither starts nor messages, children or a run that goes on as another one."""
    spans, got = configure(), []
    monkeypatch.setattr(spans.provider, "get_tracer", lambda *_, **__: MuteTracer())
    monkeypatch.setattr(provider, "_tracer", None)

    @app.workflow("shop.child.v1")
    async def child(ctx):
        return 1

    @app.workflow("shop.order.v1")
    async def order(ctx, again: bool = True):
        await ctx.step("one", lambda: 1)
        if again:
            ctx.send("mail", 1)
            await ctx.sleep(60)
            await ctx.continue_as(False)
        return await ctx.call(child)

    @app.sink("mail")
    def mail(delivery):
        got.append(delivery.payload)

    async with app.worker():
        run = await app.start(order)
        assert await run.result(600) == 1
        await asyncio.sleep(60)
    assert got == [1]


async def test_a_run_is_free_after_its_end(app, spans):
    """Spans refer to their run: without care only the garbage collector could free it."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("one", lambda: 1)

    def there():
        return {id(one) for one in gc.get_objects() if isinstance(one, Execution | RunSpans)}

    gc.collect()
    before = there()  # some that other tests still hold
    gc.disable()
    try:
        async with app.worker():
            await outcome(app, await app.start(order))
        assert there() <= before
    finally:
        gc.enable()
