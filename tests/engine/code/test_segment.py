"""Segments: results stay with the worker until the run ends, parks, pauses or fails, and share one commit."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, Fatal, Status, StepFailed, UsageError
from holdfast.testing.faulty import Faulty, break_down, die_after, die_before, lose_reply
from tests.engine.kit import keys, outcome, process, trail, until


async def echo(value):
    return value


def five_steps(app, called=None, **options):
    @app.workflow("shop.order.v1", checkpoint="segment", **options)
    async def order(ctx):
        for name in "abcde":
            await ctx.step(name, echo if called is None else called, name)
        return "done"

    return order


def watched(app):
    """Wrap the app's store so that every call is counted."""
    app.store = Faulty(app.store)
    return app.store


@pytest.mark.spec("FLOW-12", "FLOW-13")
async def test_a_run_without_waits_costs_one_claim_and_one_commit(app):
    order = five_steps(app)
    run = await app.start(order)
    store = watched(app)
    async with app.worker(keeper=False):
        assert await run.result(10) == "done"
    assert (store.calls["commit"], store.calls["renew"]) == (1, 0)
    assert await keys(app, run) == list("abcde")
    assert await trail(app, run) == ["created", "leased", "started", *["step_succeeded"] * 5, "succeeded"]


@pytest.mark.spec("FLOW-12")
@pytest.mark.parametrize("die", [die_before, die_after])
async def test_a_crash_before_the_commit_leaves_nothing_and_one_after_it_everything(app, die):
    called = []
    order = five_steps(app, called.append)
    run = await app.start(order)
    faulty = Faulty(app.store)
    doomed = await process(app, 1, faulty)
    faulty.plan("commit", 1, die(doomed.world))
    await asyncio.sleep(5)
    assert await keys(app, run) == ([] if die is die_before else list("abcde"))
    await process(app, 2)
    assert await outcome(app, run) == ("succeeded", "done")
    assert called == list("abcde") * (2 if die is die_before else 1)


@pytest.mark.spec("FLOW-12", "FLOW-13")
async def test_the_code_sees_buffered_results_in_order(app):
    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        first, second = await asyncio.gather(ctx.step("a", echo, 1), ctx.step("b", echo, 2))
        at = ctx.now()
        many = await ctx.map("each", echo, [3, 4, 5])
        return [first, second, *many, at == ctx.now()]

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(10) == [1, 2, 3, 4, 5, True]
    assert store.calls["commit"] == 1
    assert await keys(app, run) == ["a", "b", "now", "each[0]", "each[1]", "each[2]", "now#2"]


@pytest.mark.slow
@pytest.mark.spec("FLOW-12")
async def test_a_segment_ends_where_the_run_parks_and_the_next_begins_after_it(app):
    called = []

    async def count(name):
        called.append(name)

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        await ctx.step("a", count, "a")
        await ctx.step("b", count, "b")
        ctx.emit("halfway")
        await ctx.sleep(3600)
        await ctx.step("c", count, "c")
        return "done"

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        assert (store.calls["commit"], await keys(app, run)) == (1, ["a", "b", "emit:halfway", "sleep"])
        assert await run.result(4000) == "done"
    assert (store.calls["commit"], called) == (2, ["a", "b", "c"])


@pytest.mark.spec("FLOW-12")
async def test_a_failing_run_keeps_its_finished_steps(app):
    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        await ctx.step("a", echo, 1)
        raise Fatal("no such thing")

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "fatal")
    assert (store.calls["commit"], await keys(app, run)) == (1, ["a"])


@pytest.mark.spec("FLOW-12", "RETRY-1")
async def test_steps_buffered_before_a_failure_are_progress_and_are_not_run_again(app):
    """Exactly max_attempts executions fail after the last execution with progress."""
    called, bodies = [], []

    @app.workflow("shop.order.v1", checkpoint="segment", retry=Backoff.fixed(10, attempts=2))
    async def order(ctx):
        bodies.append(1)
        await ctx.step("a", lambda: called.append("a"))
        if len(bodies) >= 2:
            await ctx.step("b", lambda: called.append("b"))
        raise ValueError("again")

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
    assert (called, len(bodies)) == (["a", "b"], 3)


@pytest.mark.spec("FLOW-12")
async def test_a_failed_try_is_recorded_at_once_with_what_came_before_it(app):
    """A restart forgets no try, also in a segment."""
    tries = []

    async def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")

    @app.workflow("shop.order.v1", checkpoint="segment", retry=Backoff.fixed(0.5, attempts=3))
    async def order(ctx):
        await ctx.step("a", echo, 1)
        await ctx.step("b", flaky)
        return "done"

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(10) == "done"
    assert store.calls["commit"] == 3
    assert (await trail(app, run)).count("retried") == 2
    assert [step.attempts for step in await app.steps(run.id)] == [1, 3]


@pytest.mark.spec("FLOW-12", "FLOW-19")
async def test_a_step_that_failed_for_good_is_buffered_like_any_outcome(app):
    async def broken():
        raise Fatal("no")

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        try:
            await ctx.step("a", broken)
        except StepFailed as failed:
            return failed.kind

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(10) == "fatal"
    assert store.calls["commit"] == 1


@pytest.mark.spec("FLOW-13", "CANC-4")
async def test_a_pause_takes_effect_at_a_boundary_and_keeps_buffered_results(app, monkeypatch):
    """Without hints: a boundary asks the store."""
    monkeypatch.setattr(app.store, "listen", lambda *_: lambda: None)
    called = []

    async def slow(name):
        await asyncio.sleep(0.4)
        called.append(name)

    order = five_steps(app, slow)
    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(0.5)
        await app.pause(run.id)
        paused = await until(app, run, Status.PAUSED, within=1.5)
        assert paused.lease_until is None
        kept = await keys(app, run)
        assert kept == called == ["a", "b", "c"]  # the boundary after 1.2 s is the first to ask
        await app.resume(run.id)
        assert await run.result(10) == "done"
    assert called == list("abcde")


@pytest.mark.spec("FLOW-13", "CANC-4")
async def test_a_cancel_takes_effect_at_a_boundary_and_drops_buffered_results(app, monkeypatch):
    """Without hints: a boundary asks the store."""
    monkeypatch.setattr(app.store, "listen", lambda *_: lambda: None)
    called = []

    async def slow(name):
        await asyncio.sleep(0.4)
        called.append(name)

    order = five_steps(app, slow)
    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(0.5)
        await app.cancel(run.id)
        await asyncio.sleep(1)
        assert (worker.busy, called, await keys(app, run)) == (0, ["a", "b", "c"], [])
    assert (await app.get(run.id)).status is Status.CANCELLED


@pytest.mark.spec("FLOW-13")
async def test_a_boundary_asks_the_store_only_after_the_refresh_time(app):
    """Five steps of 0.4 s ask once with a `refresh` of a second, and never with a `refresh` of an hour."""

    async def slow(_):
        await asyncio.sleep(0.4)

    for refresh, asked in ((1, 1), (3600, 0), (0.3, 5)):
        store = watched(app)
        app.workflows.clear()
        order = five_steps(app, slow, refresh=refresh)
        async with app.worker(lease=60):
            await (await app.start(order)).result(10)
        assert (refresh, store.calls["renew"]) == (refresh, asked)


@pytest.mark.spec("CANC-4")
async def test_a_segment_of_a_run_that_was_rewound_or_taken_over_is_dropped(app):
    called = []

    async def slow(name):
        called.append(name)
        await asyncio.sleep(10)

    @app.workflow("shop.order.v1", checkpoint="segment", refresh=3600)
    async def order(ctx):
        await ctx.step("first", echo, 1)
        await ctx.sleep(1)
        await ctx.step("a", slow, "a")
        return "done"

    async with app.worker(lease=100):
        run = await app.start(order)
        await asyncio.sleep(5)
        await app.rewind(run.id, "first")
        assert await run.result(60) == "done"
    assert called == ["a", "a"]
    assert (await trail(app, run)).count("succeeded") == 1


@pytest.mark.spec("CANC-4")
async def test_a_segment_that_the_store_refuses_writes_nothing_and_the_run_is_retried(app):
    called = []
    order = five_steps(app, called.append)
    store = watched(app)
    store.plan("commit", 1, break_down)
    async with app.worker(lease=3):
        run = await app.start(order)
        assert await outcome(app, run, 60) == ("succeeded", "done")
    assert called == list("abcde") * 2
    assert (await trail(app, run)).count("step_succeeded") == 5


@pytest.mark.spec("FLOW-12", "LEASE-14")
async def test_a_segment_whose_reply_is_lost_is_sent_again(app):
    called = []
    order = five_steps(app, called.append)
    store = watched(app)
    store.plan("commit", 1, lose_reply)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(10) == "done"
    assert (called, store.calls["commit"]) == (list("abcde"), 2)
    assert (await trail(app, run)).count("step_succeeded") == 5


@pytest.mark.spec("FLOW-12", "FLOW-2")
async def test_beside_an_open_wait_each_step_is_committed_to_keep_the_order_of_the_store(app):
    """An event between two steps is stored before the later step. A later execution sees the same order."""
    seen = []

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        order_ = []

        async def branch():
            await ctx.sleep(5, key="nap")
            order_.append("slept")

        async def steps():
            for n in range(3):
                await ctx.step(f"s{n}", asyncio.sleep, 2)
                order_.append(n)

        await asyncio.gather(branch(), steps())
        seen.append(order_)
        await ctx.sleep(10)
        seen.append(order_)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert seen == [[0, 1, "slept", 2]] * 3


@pytest.mark.spec("FLOW-12")
async def test_a_release_keeps_buffered_results(app):
    called = []

    async def slow(name):
        called.append(name)
        await asyncio.sleep(1 if name in "ab" else 1000)

    order = five_steps(app, slow)
    run = await app.start(order)
    async with app.worker(grace=1):
        await asyncio.sleep(3)
    assert (await app.get(run.id)).status is Status.PENDING
    assert await keys(app, run) == ["a", "b"]


async def test_a_segment_that_never_waits_lets_other_tasks_run(app):
    """Ten thousand steps that wait for nothing do not block the loop."""

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(300):
            await ctx.step("a", echo, n, key=f"a:{n}")
            app.world.leap(0.001)  # each takes a millisecond of the processor
        return "done"

    turns = []

    async def other():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    async with app.worker():
        run = await app.start(order)
        beside = asyncio.create_task(other())
        await run.result(60)
        beside.cancel()
    assert len(await app.steps(run.id)) == 300
    assert len(turns) >= 30


async def test_many_large_results_are_committed_before_the_end_of_a_segment(app):
    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(6):
            await ctx.step("a", echo, "x" * 1_000_000, key=f"a:{n}")

    store = watched(app)
    async with app.worker():
        run = await app.start(order)
        await run.result(60)
    assert store.calls["commit"] == 2
    assert len(await keys(app, run)) == 6


def test_an_unknown_checkpoint_mode_is_refused(app):
    with pytest.raises(UsageError, match="checkpoint='batch': give 'step' or 'segment'"):
        app.workflow("shop.order.v1", checkpoint="batch")(five_steps(app).function)
