"""Live trails and long polls on Postgres, where steps send no hint and sessions may be lost."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App
from holdfast.engine.live.live import Live
from holdfast.engine.live.news import Ended
from holdfast.lifecycle import Status
from holdfast.records import ANY
from holdfast.world import RealWorld
from tests.stores.postgres.sessions.opened import cut_all, opened


async def rows(live, run):
    async with live.trail(run, "default") as trail:
        return [news async for news in trail]


async def created(live, count):
    async with live.tenant_trail(ANY, None, ["created"]) as trail:
        return {(await anext(trail)).run for _ in range(count)}


@pytest.mark.slow
@pytest.mark.spec("TRAIL-3", "STORE-1")
@pytest.mark.parametrize("loses", [False, True])
async def test_all_subscribers_see_everything_once(database, admin, loses):
    """Also when all sessions are lost in the middle."""
    async with opened(database.url) as store, asyncio.timeout(60):
        app, live = App(store), Live(store, RealWorld())

        @app.workflow("shop.order.v1")
        async def order(ctx):
            for n in range(3):
                await ctx.step(f"s{n}", asyncio.sleep, 0.2)

        news = asyncio.ensure_future(created(live, 20))
        await asyncio.sleep(0.5)
        runs = [await app.start(order) for _ in range(20)]
        trails = [asyncio.ensure_future(rows(live, run.id)) for run in runs]
        ends = [asyncio.ensure_future(live.ended(run.id, ANY, 60)) for run in runs]
        await asyncio.sleep(0.5)
        async with app.worker():
            if loses:
                await asyncio.sleep(0.4)
                cut_all(admin)
            for run, trail, end in zip(runs, trails, ends, strict=True):
                *entries, last = await trail
                assert entries == list(await store.trail(run.id, ANY))
                assert last == Ended(Status.SUCCEEDED, run.id)
                assert (await end).id == run.id
            assert await news == {run.id for run in runs}
        assert live.subscribers == 0
        await live.close()
