"""One app at several stores: the same workflows, one worker for each store, and none stops another."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest

from holdfast import App, Compress, StoreError, Unavailable, UsageError
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import Rehearsal
from holdfast.testing.faulty import Faulty, fail_before
from tests.engine.kit import send_signal


@pytest.fixture
def stores(world):
    return [Faulty(MemoryStore(clock=world.now)) for _ in range(2)]


@pytest.fixture
def at_each(app, stores):
    """The app at each of two other stores."""

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        return n * 2

    return [app.at(store.inner) for store in stores]  # the faults are for the workers only


async def until_ended(app, run):
    async with asyncio.timeout(30):
        while (found := await app.get(run.id)).status not in FINAL:  # noqa: ASYNC110 - another's handle
            await asyncio.sleep(0.1)
    return found


async def refuse(_):
    raise StoreError("fsync is off")


def down(store, calls, fault=fail_before):
    for number in range(1, calls + 1):
        store.plan("open", number, fault)  # as the worker calls it


async def test_an_app_at_another_store_has_the_same_workflows_hooks_sinks_and_no_runs(app):
    """Definitions made afterwards count too."""
    other = app.at("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    @app.on("run.failed")
    def notify(notice):
        raise AssertionError

    @app.sink("mail")
    def mail(delivery):
        raise AssertionError

    run = await other.start(order)
    async with other.worker():
        assert await run.result(timeout=10) == "done"
    assert (await app.list(), await app.get(run.id)) == ([], None)
    assert (other.hooks, other.sinks, other.name) == (app.hooks, app.sinks, app.name)
    assert (other.world, other.ttl_seconds) == (app.world, app.ttl_seconds)
    assert (app.hooks, app.sinks) != ({}, {})


async def test_the_codec_of_an_app_is_used_at_its_other_stores_too(world):
    app = App(MemoryStore(clock=world.now), world=world, codec=Compress(min_bytes=0))
    inner = MemoryStore(clock=world.now)
    other = app.at(inner)
    run = await other.start("shop.order.v1", "quiet" * 99)
    assert "quiet" not in (await inner.get(run.id, ANY)).params_json
    assert (await other.get(run.id)).params == "quiet" * 99


@pytest.mark.spec("LEASE-10")
async def test_a_signal_stops_the_workers_of_all_stores(app, at_each, stores):
    working = asyncio.create_task(app.work(stores=stores))
    for one in at_each:
        run = await one.start("shop.order.v1", 21)
        assert (await until_ended(one, run)).result == 42
    assert [len((await one.store.stats()).workers) for one in at_each] == [1, 1]
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(working, 30)
    assert [store.calls["close"] for store in stores] == [1, 1]
    assert [(await one.store.stats()).workers for one in at_each] == [(), ()]


@pytest.mark.spec("LEASE-10", "CLI-2")
async def test_an_unreachable_store_is_retried_while_the_worker_of_another_store_works(
    app, at_each, stores, caplog
):
    away, there = stores
    down(away, 4)
    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        working = asyncio.create_task(app.work(stores=stores))
        run = await at_each[1].start("shop.order.v1", 1)
        assert (await until_ended(at_each[1], run)).result == 2
        assert away.calls["claim"] == 0
        run = await at_each[0].start("shop.order.v1", 2)
        assert (await until_ended(at_each[0], run)).result == 4
        await send_signal(signal.SIGTERM)
        await asyncio.wait_for(working, 30)
    assert there.calls["close"] == 1
    assert caplog.messages == ["cannot work at this store yet, will retry: the store cannot be reached"]


@pytest.mark.spec("LEASE-10")
async def test_a_signal_also_ends_the_wait_for_an_unreachable_store(app, at_each, stores, world):
    down(stores[0], 1000)
    working = asyncio.create_task(app.work(stores=stores))
    await asyncio.sleep(100)
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(working, 1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_group_without_a_reachable_store_ends_as_one_worker_does(app, at_each, stores):
    for store in stores:
        down(store, 1000)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(app.work(stores=stores), 60)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_store_that_fails_late_does_not_stop_one_that_came_back(app, at_each, stores):
    """The first store fails at once and is reached at the second try; the second fails after that."""

    async def fail_late(call):
        await asyncio.sleep(20)
        return await fail_before(call)

    down(stores[0], 1)
    down(stores[1], 1, fail_late)
    working = asyncio.create_task(app.work(stores=stores))
    await asyncio.sleep(60)
    for one in at_each:
        assert (await until_ended(one, await one.start("shop.order.v1", 3))).result == 6
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(working, 30)


async def test_a_store_that_is_refused_at_the_start_ends_the_whole_group_gracefully(app, at_each, stores):
    """The refusal is permanent, and a line in the log could be overlooked."""
    down(stores[1], 1, refuse)
    run = await at_each[0].start("shop.order.v1", 1)
    with pytest.raises(StoreError, match="fsync is off"):
        await asyncio.wait_for(app.work(stores=stores), 60)
    assert stores[0].calls["close"] == 1
    assert (await at_each[0].get(run.id)).status in {Status.PENDING, Status.SUCCEEDED}
    assert (await at_each[0].store.stats()).workers == ()


async def test_a_store_that_is_refused_when_it_comes_back_stops_no_other(app, at_each, stores):
    down(stores[1], 2)
    stores[1].plan("open", 2, refuse)
    working = asyncio.create_task(app.work(stores=stores))
    await asyncio.sleep(60)
    for one in at_each:
        assert (await until_ended(one, await one.start("shop.order.v1", 3))).result == 6
    await send_signal(signal.SIGTERM)
    await asyncio.wait_for(working, 30)


@pytest.mark.parametrize("stores", [[], "memory://"])
async def test_a_bad_list_of_stores_is_refused(app, stores):
    with pytest.raises(UsageError, match="give a list"):
        await app.work(stores=stores)


async def test_one_store_given_twice_is_refused(app, tmp_path):
    url, store = f"sqlite:///{tmp_path}/one.db", MemoryStore()
    for twice in ([url, url], [url, f"sqlite:///{tmp_path}/../{tmp_path.name}/one.db"], [store, store]):
        with pytest.raises(UsageError, match="twice: give each store once"):
            await app.work(stores=twice)


async def test_the_log_names_stores_by_their_addresses(app, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "holdfast.worker"):
        app._workers(
            [f"sqlite:///{tmp_path}/a.db", SqliteStore(f"{tmp_path}/b.db"), Faulty(MemoryStore())], {}
        )
    ends = [one.partition(" will work at ")[2] for one in caplog.messages]
    assert ends == [f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db", "a store in memory"]


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_verbs_of_the_app_in_a_run_act_on_the_store_of_that_run(app, stores, tenant):
    """Otherwise a run would start others at the app's own store, where perhaps nobody works."""
    verbs, noticed = app if tenant is None else app.of(tenant), []

    @app.workflow("shop.item.v1")
    async def item(ctx):
        return "sent"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def start_item():
            return str((await verbs.start(item)).id)

        return await ctx.step("start", start_item)

    @app.on("run.succeeded")
    async def hook(notice):
        noticed.append(await verbs.get(notice.run) is not None)

    for number, store in enumerate(stores):
        other = app.at(store.inner)
        run = await other.start(order, tenant=tenant or "default")
        working = asyncio.create_task(app.work(stores=[store] if number else stores))
        started = await other.get((await until_ended(other, run)).result)
        assert (await until_ended(other, started)).result == "sent"
        await asyncio.sleep(1)
        await send_signal(signal.SIGTERM)
        await asyncio.wait_for(working, 30)
    assert await app.list() == []
    assert noticed
    assert all(noticed)


@pytest.mark.slow
def test_blocking_verbs_in_a_sync_step_act_on_the_store_of_that_run():
    app, store = App("memory://"), MemoryStore()
    other = app.at(store)

    @app.workflow("shop.item.v1")
    def item(ctx):
        return ctx.await_event("sent").payload

    @app.workflow("shop.order.v1")
    def order(ctx):
        def start_item():
            handle = app.sync.start(item)
            app.sync.emit("sent", "by a thread")
            return handle.result(timeout=10)

        return ctx.step("start", start_item)

    async def main():
        run = await other.start(order)
        working = asyncio.create_task(app.work(stores=[store, MemoryStore()]))
        found = await until_ended(other, run)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(working, 30)
        return found.result, await app.list()

    assert asyncio.run(main()) == ("by a thread", [])
    app.sync.close()


def test_a_rehearsal_of_a_workflow_uses_the_app_that_defined_it():
    """Not one of its apps at other stores, which has the same workflow."""
    app = App("memory://")
    others = [app.at("memory://") for _ in range(10)]

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return "done"

    with Rehearsal(order) as rehearsal:
        assert rehearsal.start(order).result() == "done"
        assert {type(one.store).__name__ for one in others} == {"_RefusedStore"}
        assert type(app.store).__name__ == "_SimulatedStore"
