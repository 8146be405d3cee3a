"""Parking of a run with branches: it waits a moment for a branch that awaits something outside the engine."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, Status
from holdfast.engine.code.stage import PARK_SECONDS
from holdfast.testing import Rehearsal, VirtualWorld
from tests.engine.kit import keys, until

OWN = {
    "a thread": lambda: asyncio.to_thread(lambda: None),
    "a timer": lambda: asyncio.sleep(PARK_SECONDS / 2),
    "two timers": lambda: asyncio.gather(asyncio.sleep(0.001), asyncio.sleep(PARK_SECONDS / 2)),
}


def loops():
    try:
        import uvloop
    except ImportError:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.spec("FLOW-9")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
@pytest.mark.parametrize("own", OWN)
async def test_a_wait_does_not_interrupt_a_branch_that_awaits_something_briefly(app, own, checkpoint):
    begun = []

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        async def branch():
            begun.append(1)
            await OWN[own]()
            await ctx.step("work", lambda: 1)

        await asyncio.gather(ctx.sleep(3600), branch())

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING, within=10)
        assert (sorted(await keys(app, run)), begun) == (["sleep", "work"], [1])


@pytest.mark.spec("FLOW-9")
async def test_a_branch_that_awaits_something_longer_restarts_after_the_wait(app):
    """It is no step, so it may be executed again at any time."""
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch():
            begun.append(1)
            await asyncio.sleep(1)
            await ctx.step("work", lambda: 1)

        await asyncio.gather(ctx.sleep(60), branch())

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING, within=0.5)
        assert await keys(app, run) == ["sleep"]
        await run.result(120)
    assert (await keys(app, run), begun) == (["sleep", "work"], [1, 1])


class Lingering(VirtualWorld):
    """Counts the calls of `linger`."""

    lingered = 0

    def linger(self, delay_seconds, then):
        self.lingered += 1
        return super().linger(delay_seconds, then)


@pytest.mark.parametrize("branched", [True, False])
async def test_only_a_run_with_branches_lingers_and_only_before_parking(store, branched):
    world = Lingering()
    app = App(store, name="test", world=world)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(*[ctx.step(f"s{n}", lambda: 1) for n in range(5)])
        if branched:
            await asyncio.gather(ctx.sleep(5), ctx.sleep(6, key="longer"))

    @app.workflow("shop.line.v1")
    async def line(ctx):
        await ctx.step("s", lambda: 1)
        await ctx.sleep(5)

    async with app.worker():
        await (await app.start(order)).result(60)
        await (await app.start(line)).result(60)
    assert world.lingered == (2 if branched else 0)


def test_no_time_passes_in_a_rehearsal_while_a_run_with_branches_parks():
    app = App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.sleep(60), ctx.await_event("parcel"))

    with Rehearsal(app) as stage:
        run = stage.start(order)
        assert run.status is Status.WAITING
        assert run.get().updated_at == run.get().created_at


@pytest.mark.spec("FLOW-2", "FLOW-9")
@pytest.mark.parametrize("loop", loops())
def test_branches_behave_the_same_on_every_event_loop(loop):
    """Some event loops show nothing of their inner state: there the turns are counted."""
    winners = []

    async def scene():
        app = App("memory://")

        @app.workflow("shop.order.v1")
        async def order(ctx):
            async def branch():
                await asyncio.sleep(PARK_SECONDS / 2)
                await ctx.step("own", lambda: 1)
                await ctx.sleep(0.02, key="short")
                return "branch"

            racers = [asyncio.ensure_future(branch()), asyncio.ensure_future(ctx.await_event("never"))]
            done, left = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
            winners.append({one.result() for one in done})
            await asyncio.gather(*[ctx.step(f"s{n}", lambda: 1) for n in range(20)])
            await ctx.sleep(0.02, key="last")
            left.pop().cancel()

        async with app.worker():
            run = await app.start(order)
            await run.result(10)
        return await keys(app, run)

    with asyncio.Runner(loop_factory=loops()[loop]) as runner:
        recorded = runner.run(scene())
    assert winners == [{"branch"}, {"branch"}]
    assert [key for key in recorded if key in {"own", "short", "last"}] == ["own", "short", "last"]
