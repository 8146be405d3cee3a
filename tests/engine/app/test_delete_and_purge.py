"""Delete, restore and purge through an app: runs are hidden at once and removed later, never by mistake."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast import App, RunFilter, Status, UnknownRun, days
from holdfast.contract import PURGE_SLICE
from tests.engine.kit import outcome, process, trail, until


@pytest.mark.spec("DEL-1")
async def test_a_deleted_run_is_hidden_and_restored_as_it_was(app):
    run = await app.start("shop.order.v1", key="7")
    deleted = await app.delete(run.id, by="Ann")
    assert deleted.deleted_at is not None
    assert await app.get(run.id) is None
    assert await app.list() == []
    assert [one.id for one in await app.list(RunFilter(deleted=True))] == [run.id]
    with pytest.raises(UnknownRun):
        await app.cancel(run.id)
    assert (await app.start("shop.order.v1", key="7")).id == run.id
    restored = await app.restore(str(run.id), by="Bob")
    assert (restored.status, restored.deleted_at) == (Status.PENDING, None)
    assert await trail(app, run) == ["created", "deleted", "restored"]


@pytest.mark.slow
@pytest.mark.spec("DEL-1", "LEASE-4")
async def test_a_worker_whose_run_is_deleted_stops_and_writes_nothing_more(app):
    told = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.step("long", asyncio.sleep, 1000)
        except asyncio.CancelledError:
            told.append(ctx.cancelled)
            raise

    run = await app.start(order)
    async with app.worker():
        await until(app, run, Status.LEASED)
        await app.delete(run.id)
        await asyncio.sleep(60)
        assert told == [True]
        await app.restore(run.id)
        assert await outcome(app, run) == ("succeeded", None)
    assert (await app.get(run.id)).crashes == 0


@pytest.mark.spec("TTL-1")
async def test_a_purge_continues_until_nothing_is_left_and_reports_its_progress(app, world):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    many = PURGE_SLICE + 20
    async with app.worker():
        for handle in await app.start_many([(order, None)] * many):
            await outcome(app, handle)
    kept = await app.start("shop.nobody.v1")
    long_lived = await app.start(order, ttl=days(400))
    async with app.worker():
        await outcome(app, long_lived)
    assert (await app.purge()).runs == 0
    world.leap(days(31))
    told = []
    done = await app.purge(progress=told.append)
    assert done.runs == many
    so_far = [one.runs for one in told]
    assert so_far == sorted(set(so_far))
    assert (len(so_far) > 1, so_far[-1]) == (True, many)
    assert {run.id for run in await app.list()} == {kept.id, long_lived.id}


@pytest.mark.spec("DEL-1", "TTL-1")
async def test_a_deleted_run_is_purged_after_its_own_time_whether_it_is_final_or_not(app, world):
    run = await app.start("shop.order.v1", key="7")
    await app.delete(run.id)
    world.leap(days(2))
    assert (await app.purge()).runs == 0
    assert (await app.purge(deleted_after=days(2))).runs == 1
    with pytest.raises(UnknownRun):
        await app.restore(run.id)
    assert (await app.start("shop.order.v1", key="7")).created


@pytest.mark.spec("TTL-1")
async def test_app_purge_uses_the_ttl_of_the_app(store, world):
    app = App(store, world=world, ttl=days(90))
    run = await app.start("shop.order.v1")
    await app.cancel(run.id)
    world.leap(days(89))
    assert (await app.purge()).runs == 0
    world.leap(days(2))
    assert (await app.purge()).runs == 1


@pytest.mark.spec("LEASE-4", "START-8", "TTL-1")
async def test_a_frozen_worker_cannot_write_to_a_new_run_with_the_same_id(app):
    """While the worker stood still, the run was deleted and purged, and a new run got the same id."""
    ended = []

    @app.workflow("shop.order.v1")
    async def order(ctx, name):
        await ctx.step("long", asyncio.sleep, 10)
        ended.append(name)
        return name

    frozen = await process(app, 1)
    run = await app.start(order, "old", id=uuid4())
    await asyncio.sleep(3)
    frozen.stop()
    await app.delete(run.id)
    assert (await app.purge(deleted_after=0)).runs == 1
    await app.start(order, "new", id=run.id)
    await process(app, 2)
    await asyncio.sleep(3)
    frozen.go_on()
    assert await outcome(app, run) == ("succeeded", "new")
    assert "new" in ended


@pytest.mark.spec("EVENT-2", "TTL-1")
async def test_a_new_run_under_a_purged_id_emits_events_of_its_own(app):
    """Events outlive their run. The events of the second run are no repeats of the first run's events."""

    @app.workflow("shop.order.v1")
    async def order(ctx, name):
        ctx.emit("done", name)
        await ctx.step("tell", lambda: ctx.emit("told", name))

    @app.workflow("shop.waiter.v1")
    async def waiter(ctx):
        return [(await ctx.await_event(topic)).payload for topic in ("done", "told")]

    async with app.worker():
        first = await app.start(order, "old", id=uuid4(), ttl=0)
        await outcome(app, first)
        assert (await app.purge()).runs == 1
        waiting = await app.start(waiter)
        await until(app, waiting, Status.WAITING)
        await app.start(order, "new", id=first.id)
        assert await outcome(app, waiting) == ("succeeded", ["new", "new"])
