"""Work that is done for many runs at once has the context of none of them: no span, and no variables."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest
from opentelemetry import trace

from tests.engine.kit import outcome

pytestmark = pytest.mark.spec("OPS-4")

BEFORE, MINE = ContextVar("before", default=""), ContextVar("mine", default="")


def seen():
    """Return what the context holds: whether a span is the current one, and both variables."""
    return trace.get_current_span().get_span_context().is_valid, BEFORE.get(), MINE.get()


def noted(monkeypatch, store, verb):
    """Note the contexts of the calls of a verb."""
    called, plain = [], getattr(store, verb)

    async def call(*args, **options):
        called.append((len(args[0]) if args else 0, *seen()))
        await asyncio.sleep(0.01)  # meanwhile others are queued
        return await plain(*args, **options)

    monkeypatch.setattr(store, verb, call)
    return called


async def test_a_commit_has_the_context_of_the_worker_and_of_no_run(app, spans, monkeypatch):
    inside = []

    @app.workflow("shop.order.v1")
    async def order(ctx, number: int):
        MINE.set(f"run {number}")
        await ctx.step("one", lambda: 1)
        ctx.emit("shop.done", {"number": number})
        inside.append(seen())
        await ctx.step("two", lambda: 2)
        return number

    await app.store.open()
    commits, delivers = (noted(monkeypatch, app.store, verb) for verb in ("commit", "deliver"))
    BEFORE.set("worker")
    with trace.get_tracer("test").start_as_current_span("around"):
        async with app.worker():
            runs = [await app.start(order, number) for number in range(10)]
            assert [await outcome(app, run) for run in runs] == [("succeeded", n) for n in range(10)]
    assert sorted(inside) == [(True, "worker", f"run {number}") for number in range(10)]
    assert len(commits) > 2
    assert max(commits)[0] > 1, "some commits are shared"
    assert {one[1:] for one in commits} == {(False, "worker", "")}
    assert {one[1:] for one in delivers} == {(False, "worker", "")}


async def test_starts_that_share_a_commit_have_no_span_of_one_caller(app, spans, monkeypatch):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        pass

    await app.store.open()
    starts = noted(monkeypatch, app.store, "start")

    async def caller():
        with trace.get_tracer("test").start_as_current_span("request"):
            await app.start(order)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(caller())
    assert max(starts)[0] > 1, "some are shared"
    assert {span for size, span, *_ in starts if size > 1} == {False}
