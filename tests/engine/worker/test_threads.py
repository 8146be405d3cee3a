"""Threads of sync code: their number, their context variables, and late returns."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import threading
from contextvars import ContextVar
from unittest.mock import Mock

import pytest

from holdfast import Backoff
from holdfast.threads import Pool
from tests.engine.kit import outcome


def test_a_thread_that_cannot_start_costs_no_thread_of_the_pool_and_its_function_never_runs(
    monkeypatch,
):
    called, pool = [], Pool(1, "few")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                pool.put(lambda: called.append("refused"))
    done = threading.Event()
    pool.put(lambda: (called.append("taken"), done.set()))
    assert done.wait(10)
    assert called == ["taken"]


def test_work_that_raises_costs_no_thread_of_the_pool(monkeypatch):
    pool, done, told = Pool(1, "few"), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: told.set())
    free = threading.Event()

    def broken():
        assert free.wait(10)
        raise ValueError("broken")

    pool.put(broken)
    pool.put(done.set)  # queued behind it
    free.set()
    assert done.wait(10)
    assert told.wait(10)
    done.clear()
    pool.put(done.set)
    assert done.wait(10)


@pytest.mark.parametrize("is_async", [True, False])
async def test_steps_see_the_context_variables_of_the_body(app, is_async):
    """Sync and async code behave the same, and no other run sees the variables."""
    who = ContextVar("who", default="nobody")

    def look():
        return [who.get(), decimal.getcontext().prec]

    async def look_async():
        return look()

    @app.workflow("shop.sync.v1")
    def sync_order(ctx, name: str):
        seen = ctx.step("before", look)
        who.set(name)
        with decimal.localcontext(prec=50):
            return [seen, ctx.step("within", look_async if is_async else look)]

    @app.workflow("shop.async.v1")
    async def other(ctx, name: str):
        seen = await ctx.step("before", look)
        who.set(name)
        with decimal.localcontext(prec=50):
            return [seen, await ctx.step("within", look_async if is_async else look)]

    async with app.worker():
        for workflow in (sync_order, other, sync_order):
            run = await app.start(workflow, "ada")
            assert await run.result(10) == [["nobody", 28], ["ada", 50]]


@pytest.mark.slow
async def test_a_sync_function_that_returns_late_is_no_longer_counted(app):
    """The same holds in virtual time, which waits for one real second and then continues."""
    go_on, returned = threading.Event(), threading.Event()

    @app.workflow("shop.order.v1", retry=Backoff.none())
    def order(ctx):
        while not go_on.is_set():
            with contextlib.suppress(BaseException):  # the mistake that this test is about
                ctx.sleep(5)
        returned.set()

    async with app.worker(slots=2) as worker:
        await outcome(app, await app.start(order))
        assert (worker.stragglers, worker.free) == (1, 1)
        go_on.set()
        assert returned.wait(10)
        while worker.stragglers:  # noqa: ASYNC110
            await asyncio.sleep(1)
        assert worker.free == 2
