"""Leases: renewed while code runs, lost when renewal fails, and never held by two workers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, Status, UsageError
from holdfast.records import ANY, Claim
from holdfast.testing.faulty import Faulty, delay_reply, fail_before, lose_reply
from tests.engine.kit import outcome, process, trail, until


@pytest.mark.spec("LEASE-3")
async def test_user_code_never_runs_for_a_claim_that_is_not_committed(app, world):
    store, executed = Faulty(app.store), []
    app.store = store

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executed.append((await app.get(ctx.run_id)).status)

    store.always("claim", fail_before)
    run = await app.start(order)
    async with app.worker():
        await asyncio.sleep(10)
        assert executed == []
        store.always("claim", None)
        await run.result(10)
    assert executed == [Status.LEASED]


@pytest.mark.spec("LEASE-8")
async def test_the_lease_is_renewed_while_a_step_runs(app):
    called = []

    async def long():
        called.append(1)
        await asyncio.sleep(200)
        return "done"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step("long", long)

    other = await process(app, 2)
    async with app.worker():
        assert await (await app.start(order)).result(300) == "done"
    assert called == [1]
    other.kill()


@pytest.mark.spec("LEASE-8")
async def test_all_runs_of_a_worker_are_renewed_in_one_write_three_times_a_lease(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 95)

    async with app.worker(lease=30):
        runs = [await app.start(order) for _ in range(20)]
        await asyncio.sleep(91)
        assert store.calls["renew"] == 9
        for run in runs:
            await run.result(60)


@pytest.mark.spec("LEASE-8")
async def test_a_renewal_can_be_requested_at_once_and_concurrent_callers_share_it(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 30)

    async with app.worker() as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        before = store.calls["renew"]
        await asyncio.gather(*[worker.leases.refresh() for _ in range(10)])
        assert store.calls["renew"] == before + 1
        assert (await app.get(run.id)).lease_until > (await app.get(run.id)).created_at


@pytest.mark.spec("LEASE-8", "CANC-2")
async def test_a_renewal_shows_a_run_that_it_was_cancelled(app, world):
    ended = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(world.monotonic())

    async with app.worker(lease=30) as worker:
        run = await app.start(order)
        await asyncio.sleep(1)
        await app.cancel(run.id)
        await worker.leases.refresh()
        await asyncio.sleep(0.1)
        assert len(ended) == 1


@pytest.mark.spec("LEASE-8")
async def test_a_renewal_that_fails_once_or_with_an_unknown_error_is_retried(app):
    store = app.store = Faulty(app.store)
    called = []

    async def long():
        called.append(1)
        await asyncio.sleep(100)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", long)

    for number in (1, 3, 4):
        store.plan("renew", number, fail_before)
    other = await process(app, 2, store.inner)
    async with app.worker(lease=30):
        run = await app.start(order)
        await run.result(200)
    assert called == [1]
    other.kill()


@pytest.mark.spec("LEASE-9")
async def test_a_claimed_run_whose_lease_expired_before_it_began_is_not_executed(app):
    store, executed = Faulty(app.store), []
    app.store = store

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executed.append((await trail(app, run)).count("leased"))

    store.plan("claim", 1, delay_reply(40))
    run = await app.start(order)
    async with app.worker(lease=30):
        await run.result(100)
    assert executed == [2]


@pytest.mark.spec("LEASE-11")
async def test_worker_ids_are_readable_and_new_at_each_start(app):
    ids = [app.worker().id for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(one.startswith("test:virtual:0:") for one in ids)


@pytest.mark.spec("LEASE-11")
def test_two_workers_of_one_process_have_different_ids():
    app = App("memory://", name="shop")
    first, second = app.worker().id, app.worker().id
    assert first != second
    assert first.split(":")[0] == "shop"
    assert len(first.split(":")) == 4


@pytest.mark.spec("LEASE-17")
async def test_a_lost_reply_of_a_claim_leaves_no_run_behind(app):
    store = app.store = Faulty(app.store)
    attempts = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        attempts.append(ctx.attempt)

    runs = [await app.start(order) for _ in range(3)]
    store.plan("claim", 1, lose_reply)
    async with app.worker(lease=30):
        for run in runs:
            assert await outcome(app, run, 29) == ("succeeded", None)
    assert attempts == [1, 1, 1]
    for run in runs:
        assert "released" in await trail(app, run)
        assert "lease_expired" not in await trail(app, run)


@pytest.mark.spec("LEASE-17")
async def test_a_run_of_a_slow_claim_reply_is_not_released_as_lost(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nap", asyncio.sleep, 30)

    store.plan("claim", 1, delay_reply(25))
    run = await app.start(order)
    async with app.worker(lease=30):
        await run.result(60)
    assert "released" not in await trail(app, run)


@pytest.mark.spec("LEASE-17")
async def test_two_workers_of_one_app_do_not_release_each_others_runs(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nap", asyncio.sleep, 100)

    async with app.worker(slots=1), app.worker(slots=1):
        runs = [await app.start(order) for _ in range(2)]
        for run in runs:
            await run.result(200)
            assert "released" not in await trail(app, run)


@pytest.mark.spec("LEASE-15")
async def test_an_idle_worker_writes_nothing_but_its_presence(app):
    store = app.store = Faulty(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.sleep(10**6)

    run = await app.start(order)
    async with app.worker():
        await until(app, run, Status.WAITING)
        store.calls.clear()
        before = await snapshot(store)
        await asyncio.sleep(300)
        assert await snapshot(store) == before
        assert 9 <= store.calls["present"] <= 10
        writes = set(store.calls) - {
            "claim",
            "tick",
            "renew",
            "due",
            "now",
            "present",
            "trail",
            "list",
            "*",
            "definitions",
            "relay_at",
        }
        assert writes == set()


async def snapshot(store):
    """Return everything that can be read from a store, except the live workers."""
    from holdfast.records import RunFilter

    return (
        await store.inner.list(RunFilter(tenant=ANY)),
        await store.inner.trail(None, ANY),
        await store.inner.definitions(),
    )


@pytest.mark.spec("LEASE-16")
@pytest.mark.parametrize("bad", [{"slots": 0}, {"lease": 0.1}, {"patterns": ["%.x"]}, {"patterns": [""]}])
async def test_worker_options_that_cannot_work_are_refused(app, bad):
    with pytest.raises(UsageError):
        app.worker(**bad)


@pytest.mark.spec("LEASE-16")
async def test_a_worker_never_holds_more_runs_than_slots(app):
    at_once, most = 0, 0

    @app.workflow("shop.order.v1")
    async def order(ctx):
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        await asyncio.sleep(1)
        at_once -= 1

    runs = [await app.start(order) for _ in range(20)]
    async with app.worker(slots=7, batch=3):
        for run in runs:
            await run.result(60)
    assert most == 7


@pytest.mark.spec("LEASE-16", "LEASE-12")
async def test_a_worker_bound_to_tenants_takes_only_their_runs(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return ctx.tenant

    mine, other = await app.start(order, tenant="acme"), await app.start(order)
    async with app.worker(tenants=["acme"]):
        assert await mine.result(10) == "acme"
        await asyncio.sleep(5)
    assert (await app.get(other.id)).status is Status.PENDING


@pytest.mark.spec("LEASE-6")
async def test_a_run_that_kills_its_worker_fails_alone(app):
    """Each process that begins the poison run dies at once. Its neighbours survive."""
    victims = []

    @app.workflow("shop.poison.v1")
    async def poison(ctx):
        victims[-1].kill()
        await asyncio.sleep(0)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(2)
        return "fine"

    bad = await app.start(poison)
    good = [await app.start(order) for _ in range(30)]
    for seed in range(1, 40):
        victims.append(await process(app, seed, slots=16, lease=3))
        for _ in range(60):
            await asyncio.sleep(0.5)
            if victims[-1].world.frozen:
                break
        if (await app.get(bad.id)).status is Status.FAILED:
            break
    async with app.worker(slots=16):
        for run in good:
            assert await outcome(app, run, 100) == ("succeeded", "fine")
    assert await outcome(app, bad) == ("failed", "lease_expired")


def test_a_claim_carries_all_data_that_an_execution_needs():
    """The worker reads these fields. A store of another package must fill them."""
    assert {"fence", "attempt", "crashes", "steps", "lease_until", "timeout_at", "logs"} <= set(
        Claim.__struct_fields__
    )
