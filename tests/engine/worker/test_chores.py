"""Chores of a keeper: an error or a delay in one chore does not delay the others."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.worker.chores import STALL_SECONDS
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import Ask, Chore, Item, NewEvent
from holdfast.records.moves import Complete
from tests.engine.kit import until, working


class Broken:
    """A store in which one chore always raises or hangs."""

    def __init__(self, store, chore, how):
        self._store, self._chore, self._how = store, chore, how
        self.begun = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def tick(self, *args, only=None, **fields):
        if only is self._chore:
            self.begun += 1
            if self._how == "hangs":
                await asyncio.Event().wait()
            raise Unavailable("not now") if self._how == "is away" else ValueError("a bug")
        return await self._store.tick(*args, only=only, **fields)


@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("how", ["raises", "is away", "hangs"])
@pytest.mark.parametrize("chore", list(Chore))
async def test_a_broken_chore_does_not_delay_the_others(app, chore, how):
    """Schedules fire, leases expire, sleeps end, events are delivered and runs time out."""

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(100)

    @app.workflow("shop.waiter.v1")
    async def waiter(ctx):
        await ctx.await_event("news")

    async with working(app, keeper=False):
        sleeper, listener = await app.start(nap), await app.start(waiter)
        for run in (sleeper, listener):
            await until(app, run, Status.WAITING)
        slow = await app.start(nap, timeout=90)
        await until(app, slow, Status.WAITING)
    lost = await app.start(nap)
    await app.store.claim(ask())
    await app.schedule("each minute", nap, every=60)
    broken = Broken(app.store, chore, how)
    task = asyncio.create_task(Keeper(broken).run())
    await asyncio.sleep(30)
    await record(app, "news")
    await asyncio.sleep(75)
    seen = {
        Chore.EXPIRE: (await app.get(lost.id)).status is not Status.LEASED,
        Chore.TIME_OUT: (await app.get(slow.id)).status is Status.FAILED,
        Chore.LAPSE: (await app.get(sleeper.id)).status is Status.PENDING,
        Chore.DELIVER: (await app.get(listener.id)).status is Status.PENDING,
        "schedules": (await app.schedules())[0].fired == 1,
    }
    task.cancel()
    assert [name for name, done in seen.items() if not done] == ([] if chore is Chore.COUNT else [chore])
    assert broken.begun >= 2 or how == "hangs" or chore is Chore.COUNT  # memory has nothing to fold


@pytest.mark.spec("OPS-1")
async def test_a_chore_that_hangs_is_restarted_after_a_while(app):
    await app.store.open()
    await record(app, "news")
    broken = Broken(app.store, Chore.DELIVER, "hangs")
    task = asyncio.create_task(Keeper(broken).run())
    await asyncio.sleep(2.5 * STALL_SECONDS)
    task.cancel()
    assert 2 <= broken.begun <= 3


def ask():
    return Ask(worker="gone", types=("shop.nap.v1",), limit=1, lease_seconds=10.0)


async def record(app, topic):
    """Record an event that is not delivered, because its emitter died."""
    run = await app.start("shop.other.v1")
    (claim,) = await app.store.claim(Ask(worker="w", types=("shop.other.v1",), limit=1, lease_seconds=30.0))
    event = NewEvent(topic=topic, id="e")
    move = Complete(result="null")
    end = Item(run=run.id, fence=claim.fence, number=1, move=move, events=(event,))
    await app.store.commit([end])


class Counted:
    """A store that records the calls of a keeper."""

    def __init__(self, store):
        self._store, self.asked = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def due(self, *args, **fields):
        self.asked.append("due")
        return await self._store.due(*args, **fields)

    async def tick(self, *args, only=None, **fields):
        self.asked.append(str(only))
        return await self._store.tick(*args, only=only, **fields)

    async def due_schedules(self, *args, **fields):
        self.asked.append("schedules")
        return await self._store.due_schedules(*args, **fields)


@pytest.mark.spec("OPS-1")
async def test_a_keeper_runs_only_the_chores_that_are_due(app):
    """For a sleep that ends: one look, one chore, and one commit if the store counts commits."""

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(100)

    async with working(app, keeper=False):
        run = await app.start(nap)
        await until(app, run, Status.WAITING)
    counted = Counted(app.store)
    await asyncio.sleep(101)
    await app.store.tick(only=Chore.COUNT)
    before = (await app.store.stats()).extra.get("commits")
    task = asyncio.create_task(Keeper(counted).run())
    await until(app, run, Status.PENDING)
    assert counted.asked[:2] == ["due", "lapse"]
    assert not {"expire", "time_out", "deliver", "schedules"} & set(counted.asked)
    if before is not None:
        assert (await app.store.stats()).extra["commits"] == before + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
