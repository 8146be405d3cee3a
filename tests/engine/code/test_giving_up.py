"""Waits that the code gives up, and calls that it never awaits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast.errors import RunFailed


async def race(*branches):
    """Run the branches as a race, and cancel the losers."""
    tasks = [asyncio.ensure_future(branch) for branch in branches]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return next(iter(done)).result()


@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_a_wait_that_lost_its_race_leaves_its_event_to_the_next_wait(app):
    """A wait that the code gives up is closed: a later wait on the topic gets the event."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for _ in range(5):
            got = await race(ctx.await_event("order", timeout=3600), ctx.sleep(60))
            if got is not None:
                return got.payload
        return None

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(90)
        assert (await app.emit("order", "here")).woken == 1
        assert await run.result(timeout=3600) == "here"


@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_an_event_for_the_losing_wait_is_free_again_without_a_live_worker(app):
    """Both waits end before any code looks: the earlier wait wins, and the event is not lost."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        early = await race(ctx.await_event("order", key="first"), ctx.sleep(60))
        later = await ctx.await_event("order", timeout=3600, key="second")
        return [early and early.payload, later.payload]

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
    await asyncio.sleep(90)
    await app.store.tick()
    await app.emit("order", "here")
    async with app.worker():
        assert await run.result(timeout=3600) == [None, "here"]


@pytest.mark.parametrize("what", ["step", "sleep", "event", "map"])
@pytest.mark.filterwarnings(
    "ignore:coroutine:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
async def test_a_call_that_is_never_awaited_fails_the_run_by_name(app, what):
    """Otherwise a step that never ran would look like a success."""

    async def charge(_item=None):
        raise AssertionError("never to be reached")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        match what:
            case "step":
                ctx.step("charge", charge)
            case "sleep":
                ctx.sleep(5, key="charge")
            case "event":
                ctx.await_event("order", key="charge")
            case "map":
                ctx.map("charge", charge, [1, 2])

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(RunFailed, match="'charge' was asked for and never awaited"):
            await run.result(timeout=60)


@pytest.mark.parametrize("how", ["cancel", "group", "wait_for"])
async def test_a_call_cancelled_before_it_began_counts_as_given_up(app, how):
    """The code itself cancelled the call: that is no reason to fail the run."""

    async def charge():
        raise AssertionError("never to be reached")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        with suppress(TimeoutError, asyncio.CancelledError, ExceptionGroup):
            match how:
                case "cancel":
                    task = asyncio.ensure_future(ctx.step("charge", charge))
                    task.cancel()
                    await task
                case "group":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(ctx.map("charge", charge, [1]))
                        raise ValueError("no")
                case "wait_for":
                    await asyncio.wait_for(ctx.await_event("order"), 0)
        return "well"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(timeout=60) == "well"


@pytest.mark.spec("EVENT-4")
async def test_a_wait_given_up_while_its_commit_is_in_flight_is_closed_too(app, monkeypatch):
    """The wait is not recorded yet, but it will be in the store, and would take the next wait's event."""
    commit = app.store.commit

    async def slow_commit(items):
        await asyncio.sleep(5)
        return await commit(items)

    monkeypatch.setattr(app.store, "commit", slow_commit)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        early = asyncio.ensure_future(ctx.await_event("order", key="early"))
        work = asyncio.ensure_future(ctx.step("work", asyncio.sleep, 30))
        await asyncio.sleep(2)
        early.cancel()
        await work
        return (await ctx.await_event("order", timeout=100, key="late")).payload

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(60)
        assert [str(step.status) for step in await app.steps(run.id)] == ["cancelled", "succeeded", "waiting"]
        await app.emit("order", "here")
        assert await run.result(timeout=3600) == "here"


@pytest.mark.spec("FLOW-9")
async def test_asyncio_timeout_gives_up_the_wait_in_every_execution(app):
    """At replay the code cancels, not the engine. Otherwise TimeoutError would become CancelledError."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        work = asyncio.ensure_future(ctx.step("work", asyncio.sleep, 30))
        try:
            async with asyncio.timeout(10):
                await ctx.await_event("order")
        except TimeoutError:
            await work
            await ctx.sleep(60)
            return "too late"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(timeout=3600) == "too late"


@pytest.mark.spec("EVENT-4", "RETRY-1")
@pytest.mark.parametrize("since", ["start", "now"])
async def test_the_next_attempt_waits_again_for_waits_that_a_failed_attempt_gave_up(app, since):
    """A sibling fails and its group cancels the waits: they keep their events and their deadlines."""
    attempts = 0

    @app.workflow("shop.order.v1")
    async def order(ctx):
        nonlocal attempts
        attempts += 1

        async def flaky():
            if attempts <= 2:
                await asyncio.sleep(2)
                raise ConnectionError("a bad moment")

        async with asyncio.TaskGroup() as group:
            event = group.create_task(ctx.await_event("order", since=since))
            group.create_task(ctx.sleep(100))
            group.create_task(ctx.step("work", asyncio.sleep, 5))
            group.create_task(flaky())
        return event.result().payload

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.emit("order", "here")
        assert await run.result(timeout=3600) == "here"
    found = await app.get(run.id)
    assert 100 <= (found.finished_at - found.created_at).total_seconds() < 103


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_branch_without_a_loop_turn_at_replay_does_not_fail_the_run(app, cancels):
    """At replay the code reaches its end without a loop turn for the other branch."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        watch = asyncio.ensure_future(ctx.await_event("stop"))
        await ctx.sleep(10)
        if cancels:
            watch.cancel()
        await ctx.sleep(10)
        return "well"

    async with app.worker():
        run = await app.start(order)
        if cancels:
            assert await run.result(timeout=60) == "well"
        else:
            with pytest.raises(RunFailed, match="'event:stop' was begun in a task that is still open"):
                await run.result(timeout=60)
