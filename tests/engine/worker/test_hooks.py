"""Hooks are called after the commit, beside the run, and their faults harm no run."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from holdfast import App, Backoff, Fatal, Notice, Status, UsageError
from holdfast.engine.hooks import NAMES
from holdfast.engine.worker import hook_notifier
from holdfast.stores.memory import MemoryStore
from tests.engine.kit import outcome, process, until


def listen(app, *names):
    """Register a hook, and return the list of its notices."""
    notices = []

    @app.on(*(names or NAMES))
    async def collect(notice):
        notices.append(notice)

    return notices


def names(notices):
    return [one.name for one in notices]


@pytest.mark.spec("OPS-3")
async def test_hooks_get_the_start_and_success_of_a_run_with_its_identity(app):
    notices = listen(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("pack", lambda: 1)

    run = await app.start(order)
    async with app.worker() as worker:
        await outcome(app, run)
    assert names(notices) == ["worker.started", "run.started", "run.succeeded", "worker.stopped"]
    assert notices[2] == Notice(
        name="run.succeeded", worker=worker.id, run=run.id, type="shop.order.v1", tenant="default",
        attempt=1, status=Status.SUCCEEDED,
    )  # fmt: skip
    assert notices[0] == Notice(name="worker.started", worker=worker.id)


@pytest.mark.spec("OPS-3")
async def test_hooks_get_a_failure_with_its_error_after_the_commit(app):
    """A hook can read the committed state."""
    seen = []

    @app.on("run.failed", "step.failed")
    async def look(notice):
        found = await app.get(notice.run)
        steps = [str(step.status) for step in await app.steps(notice.run)]
        seen.append((notice.name, notice.step, notice.error.message, str(found.status), steps))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def charge():
            raise Fatal("card declined")

        await ctx.step("charge", charge)

    run = await app.start(order)
    async with app.worker():
        await outcome(app, run)
    assert [(name, step, message) for name, step, message, _, _ in seen] == [
        ("step.failed", "charge", "card declined"),
        ("run.failed", "charge", "step 'charge' failed: card declined"),
    ]
    assert seen[0][4] == ["failed"]
    assert seen[1][3] == "failed"


@pytest.mark.spec("OPS-3")
async def test_every_end_of_an_execution_has_its_own_hook_name(app):
    notices = listen(app)

    @app.workflow("shop.order.v1", retry=Backoff.fixed(10, attempts=3))
    async def order(ctx):
        await ctx.await_event("paid")
        if len([one for one in notices if one.name == "run.retried"]) < 1:
            raise ValueError("once")
        await ctx.step("long", asyncio.sleep, 1000)

    run = await app.start(order)
    async with app.worker(grace=1):
        await until(app, run, Status.WAITING)
        await app.emit("paid")
        await asyncio.sleep(30)
    assert names(notices)[1:-1] == [
        "run.started",
        "run.waiting",
        "run.started",
        "run.retried",
        "run.started",
        "run.released",
    ]
    retried = notices[4]
    assert (retried.status, retried.error.message) == (Status.PENDING, "once")
    assert notices[6].status is Status.PENDING
    async with app.worker():
        await asyncio.sleep(1)
        await app.pause(run.id)
        await asyncio.sleep(1010)
    assert names(notices)[-2:] == ["run.paused", "worker.stopped"]


@pytest.mark.spec("OPS-3")
async def test_the_worker_of_a_cancelled_run_calls_the_hook(app):
    notices = listen(app, "run.cancelled", "run.lost")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 1000)

    run = await app.start(order)
    async with app.worker():
        await asyncio.sleep(1)
        await app.cancel(run.id)
        await asyncio.sleep(60)
    assert [(one.name, one.status) for one in notices] == [("run.cancelled", Status.CANCELLED)]


@pytest.mark.spec("OPS-3")
async def test_hooks_get_retries_in_place_and_retries_with_backoff(app):
    notices = listen(app, "run.retried", "step.failed")
    tries = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.5, attempts=3))
    async def order(ctx):
        def charge():
            tries.append(1)
            if len(tries) < 2:
                raise ValueError("busy")

        await ctx.step("charge", charge, retry=Backoff.fixed(30))
        if len(notices) < 2:
            raise KeyError("soon")

    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run) == ("succeeded", None)
    assert [(one.status, one.step, one.error.type) for one in notices] == [
        (Status.PENDING, "charge", "ValueError"),
        (Status.LEASED, None, "KeyError"),
    ]


@pytest.mark.spec("OPS-3", "LEASE-6")
async def test_the_worker_of_a_keeper_that_fails_a_run_calls_the_hook(app):
    notices = listen(app, "run.failed")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(10**6)

    run = await app.start(order, timeout=60)
    async with app.worker():
        await until(app, run, Status.FAILED)
        await asyncio.sleep(1)
    assert [(one.run, one.type, one.error.kind) for one in notices] == [(run.id, "shop.order.v1", "timeout")]


@pytest.mark.spec("OPS-3")
async def test_a_late_worker_calls_the_hook_for_the_lost_run(app):
    notices = listen(app, "run.lost")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 40)

    run = await app.start(order)
    one = await process(app, 1, lease=30, hooks=app.hooks)
    await asyncio.sleep(1)
    one.stop()
    async with app.worker(name="other"):
        await outcome(app, run)
        one.go_on()
        await asyncio.sleep(60)
    assert [(notice.run, notice.worker, notice.status) for notice in notices] == [
        (run.id, one.worker.id, None)
    ]


@pytest.mark.spec("OPS-3")
async def test_a_failing_hook_harms_no_run_and_no_other_hook(app, caplog):
    """Not even a hook that tries to end the process."""

    @app.on("run.succeeded")
    async def broken(notice):
        raise ValueError("no such channel")

    @app.on("run.succeeded")
    def leaves(notice):
        raise SystemExit(3)

    notices = listen(app, "run.succeeded")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 7

    async with app.worker():
        for _ in range(3):
            assert await outcome(app, await app.start(order)) == ("succeeded", 7)
    assert len(notices) == 3
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 6
    assert "broken failed at run.succeeded (run " in errors[0]


@pytest.mark.spec("OPS-3")
async def test_a_hanging_hook_is_given_up_and_delays_only_itself(app, world, caplog):
    begun, at_once = [], set()

    @app.on("run.succeeded")
    async def hangs(notice):
        begun.append(notice.run)
        at_once.add(notice.run)
        try:
            await asyncio.sleep(10**6)
        finally:
            assert len(at_once) <= hook_notifier.AT_ONCE
            at_once.discard(notice.run)

    notices = listen(app, "run.succeeded")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 7

    async with app.worker():
        runs = [await app.start(order) for _ in range(10)]
        for run in runs:
            await outcome(app, run)
        assert world.monotonic() < 5
        await asyncio.sleep(3.5 * hook_notifier.CALL_SECONDS)
        assert (len(begun), len(notices)) == (10, 10)
    assert "has not returned from run.succeeded within 30 s" in caplog.text
    assert "the worker stops" not in caplog.text


@pytest.mark.spec("OPS-3")
async def test_the_queue_of_a_hanging_hook_is_bounded(app, monkeypatch, caplog):
    monkeypatch.setattr(hook_notifier, "QUEUE_MAX", 5)
    begun = []

    @app.on("run.succeeded")
    async def slow(notice):
        begun.append(notice.run)
        await asyncio.sleep(20)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 7

    async with app.worker():
        for _ in range(30):
            await outcome(app, await app.start(order))
        await asyncio.sleep(100)
    assert len(begun) == hook_notifier.AT_ONCE + 5
    assert "slow is too slow" in caplog.text
    assert "21 notices were dropped" in caplog.text


@pytest.mark.spec("OPS-3")
async def test_a_stopping_worker_waits_a_short_while_for_its_hooks(app, world, caplog):
    ended = []

    @app.on("run.succeeded")
    async def slow(notice):
        await asyncio.sleep(3)
        ended.append(notice.run)

    @app.on("worker.stopped")
    async def never(notice):
        await asyncio.sleep(10**6)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 7

    async with app.worker():
        run = await app.start(order)
        await outcome(app, run)
        begun = world.monotonic()
    assert ended == [run.id]
    assert world.monotonic() - begun <= hook_notifier.STOP_SECONDS + 1
    assert "stops before these hooks have returned" in caplog.text
    assert "never" in caplog.text


@pytest.mark.spec("OPS-3")
def test_a_sync_hook_runs_in_a_thread_and_blocks_nothing_if_it_never_returns(monkeypatch):
    """Real threads: the number of stuck threads is bounded, so that steps find free ones."""
    monkeypatch.setattr(hook_notifier, "CALL_SECONDS", 0.01)
    monkeypatch.setattr(hook_notifier, "STOP_SECONDS", 0.05)
    app, gate, begun = App(MemoryStore()), threading.Event(), []

    @app.on("run.succeeded")
    def stuck(notice):
        begun.append(threading.current_thread() is threading.main_thread())
        gate.wait(10)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("sync", lambda: 7)

    async def scene():
        async with asyncio.timeout(5), app.worker():
            for _ in range(3 * hook_notifier.AT_ONCE):
                assert await (await app.start(order)).result() == 7

    try:
        asyncio.run(scene())
    finally:
        gate.set()
    assert begun == [False] * hook_notifier.AT_ONCE


@pytest.mark.spec("OPS-3")
def test_a_hook_that_can_never_be_called_is_refused_at_definition():
    app = App(MemoryStore())
    with pytest.raises(UsageError, match=r"did you mean 'run.failed'\? the hooks are run.started, "):
        app.on("run.fail")
    with pytest.raises(UsageError, match="there is no hook 7"):
        app.on("run.failed", 7)
    with pytest.raises(UsageError, match="a hook needs a name"):
        app.on(print)
    with pytest.raises(UsageError, match="a hook needs a name"):
        app.on()
    with pytest.raises(UsageError, match="a hook takes one argument, the notice"):
        app.on("run.failed")(lambda: None)
    assert app.hooks == {}


@pytest.mark.spec("OPS-3")
async def test_a_hook_decorator_returns_the_function(app):
    @app.on("run.succeeded", "run.succeeded", "run.failed")
    def tell(notice):
        return notice.name

    assert tell(Notice(name="run.failed", worker="w")) == "run.failed"
    assert [len(app.hooks[name]) for name in ("run.succeeded", "run.failed")] == [1, 1]
