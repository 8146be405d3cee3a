"""Bulk operations and the slots of a worker: they leave most of them to runs of users."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from holdfast import BulkReport, RunFilter, Status
from holdfast.engine.bulk.asked import BULK_TYPE
from holdfast.engine.worker.worker import Worker
from tests.engine.bulk.orders import failed_orders, retries, shop
from tests.engine.kit import process, until

DELAYED = 100_000


async def delayed_orders(app, order, count, **options):
    runs = [await app.start(order, n, delay=DELAYED, **options) for n in range(count)]
    await asyncio.sleep(1)
    return runs


@pytest.mark.spec("READ-3")
async def test_slow_operations_of_one_tenant_hold_up_no_run_of_another(app):
    """Between two runs of a slow operation its slot is free."""
    order, _, mended = shop(app)
    mended.append(True)
    orders = await delayed_orders(app, order, 12, tenant="acme")
    async with app.worker(slots=4) as worker:
        bulks = [await app.of("acme").bulk.pause(RunFilter(), rate=1) for _ in range(8)]
        held = []
        for n in range(8):
            await asyncio.sleep(0.5)
            quick = await app.start(order, n, tenant="bolt")
            assert (await until(app, quick, within=0.5)).status is Status.SUCCEEDED
            held.append(worker.busy)
        assert max(held) <= 1  # a quarter of four slots
        for bulk in bulks:
            report = await bulk.result(200)
            assert report.refused == {}
    assert [len(await app.trail(run.id, types=("paused",))) for run in orders] == [1] * 12


@pytest.mark.spec("READ-3")
async def test_fast_operations_hold_at_most_a_quarter_of_the_slots(app):
    order, _, mended = shop(app)
    mended.append(True)
    await delayed_orders(app, order, 120, tenant="acme")
    async with app.worker(slots=8) as worker:
        bulks = [await app.of("acme").bulk.pause(RunFilter(), rate=50) for _ in range(6)]
        for n in range(10):
            await asyncio.sleep(0.3)
            types = [one.claim.type for one in worker.leases.held.values()]
            assert types.count(BULK_TYPE) <= 2
            quick = await app.start(order, n, tenant="bolt")
            assert (await until(app, quick, within=0.3)).status is Status.SUCCEEDED
        for bulk in bulks:
            await bulk.result(100)


@pytest.mark.spec("READ-3")
async def test_operations_take_turns(app):
    """One that asks for its second page waits behind one that has not had its first."""
    order, _, _ = shop(app)
    await delayed_orders(app, order, 120, tenant="acme")
    late = await delayed_orders(app, order, 1, tenant="bolt")
    async with app.worker(slots=4):
        bulks = [await app.of("acme").bulk.pause(RunFilter(), rate=20) for _ in range(3)]
        bulk = await app.of("bolt").bulk.pause(RunFilter())
        assert await bulk.result(8) == BulkReport(done=1)
        assert [(await app.get(one.id)).status in {Status.LEASED, Status.PENDING} for one in bulks] == [
            True
        ] * 3
    assert (await app.get(late[0].id)).status is Status.PAUSED


@pytest.mark.spec("READ-3")
async def test_a_worker_of_bulk_operations_alone_uses_all_its_slots(app):
    order, _, _ = shop(app)
    await delayed_orders(app, order, 60)
    async with Worker(app.store, app.world, {}, name="serve", slots=3, keeper=False, relay=False) as worker:
        bulks = [await app.bulk.pause(RunFilter(), rate=20) for _ in range(3)]
        await asyncio.sleep(2)
        assert worker.busy == 3
        for bulk in bulks:
            await bulk.result(60)


@pytest.mark.spec("READ-3")
async def test_a_slow_operation_needs_no_keeper_and_keeps_its_pace_after_kills(app):
    """The instant of its next call is recorded with the page: a successor waits for it."""
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 6)
    bulk = await app.bulk.retry(RunFilter(statuses=(Status.FAILED,)), rate=2)
    options = {"patterns": ("none.%",), "lease": 3, "relay": False}
    for seed in range(3):
        worker = await process(app, seed, keeper=seed > 0, **options)
        await asyncio.sleep(1.23)
        worker.kill()
    async with app.worker(**options):
        assert await bulk.result(60) == BulkReport(done=6)
    assert await retries(app, runs) == [1] * 6
    at = sorted([(await app.trail(run.id, types=("retried",)))[0].at for run in runs])
    gaps = [(late - soon).total_seconds() for soon, late in pairwise(at)]
    assert min(gaps) >= 0.499
