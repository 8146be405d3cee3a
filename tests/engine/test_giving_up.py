"""Waits that the code gives up, and calls that it never awaits."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import RunFailed


async def first(*branches):
    """Race the branches; the losers are cancelled."""
    tasks = [asyncio.ensure_future(branch) for branch in branches]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return next(iter(done)).result()


@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_a_wait_that_lost_its_race_leaves_the_event_to_the_next_one(app):
    """Given up by the code, it is closed: a later wait on the topic gets the event, not the forgotten one."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for _ in range(5):
            got = await first(ctx.await_event("order", timeout=3600), ctx.sleep(60))
            if got is not None:
                return got.payload
        return None

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(90)
        assert (await app.emit("order", "here")).woken == 1
        assert await run.result(timeout=3600) == "here"


@pytest.mark.spec("EVENT-4", "FLOW-9")
async def test_an_event_that_came_for_the_loser_while_nobody_worked_is_free_again(app):
    """Both waits settle before anyone looks: the earlier wins, the event is not lost with the other."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        early = await first(ctx.await_event("order", key="first"), ctx.sleep(60))
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
    """A step that silently never ran is the worst success there is."""

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
