"""Bulk operations and runs that change meanwhile; errors of the store."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, BulkReport, RunFilter, Status, StoreError
from holdfast.engine.bulk.asked import CHANGED
from tests.engine.bulk.orders import failed_orders, retries, shop
from tests.engine.kit import until

FAILED = RunFilter(statuses=(Status.FAILED,))


@pytest.mark.spec("READ-3")
async def test_a_run_that_changed_after_the_start_is_left_out(app):
    """A failed run that a person retried meanwhile, and that failed again, is not retried."""
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 3)
    bulk = await app.bulk.retry(FAILED)
    await app.retry(runs[1].id)
    async with app.worker(patterns=("shop.%",), runtime="other"):
        await until(app, runs[1])
    async with app.worker():
        report = await bulk.result(60)
    assert (report.done, report.left_out) == (2, {CHANGED: 1})
    assert report.sample == {CHANGED: (runs[1].id,)}
    assert (report.seen, await retries(app, runs)) == (3, [1, 1, 1])


@pytest.mark.spec("READ-3")
async def test_a_run_that_fails_again_is_not_retried_again_by_the_same_operation(app):
    """The rate is so low that each run has failed again long before the operation ends."""
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 5)
    async with app.worker():
        report = await (await app.bulk.retry(FAILED, rate=1)).result(60)
        await asyncio.sleep(30)
    assert (report.done, report.left_out) == (5, {})
    assert await retries(app, runs) == [1] * 5


@pytest.mark.spec("READ-3")
async def test_busy_runs_are_cancelled_although_they_record_steps(app):
    @app.workflow("shop.busy.v1")
    async def busy(ctx):
        for n in range(10_000):
            await ctx.step("turn", asyncio.sleep, 0.05, key=f"turn[{n}]")

    async with app.worker():
        runs = [await app.start(busy) for _ in range(3)]
        await asyncio.sleep(2)
        report = await (await app.bulk.cancel(RunFilter(type="shop.busy.v1"))).result(60)
        assert report == BulkReport(done=3)
        assert [(await app.get(run.id)).status for run in runs] == [Status.CANCELLED] * 3


@pytest.mark.spec("READ-3")
@pytest.mark.parametrize(("verb", "after"), [("cancel", Status.CANCELLED), ("pause", Status.PAUSED)])
async def test_runs_that_park_and_wake_are_stopped(app, verb, after):
    """Each wake is a change. Runs that were created after the start are left alone."""

    @app.workflow("shop.poll.v1")
    async def poll(ctx):
        for n in range(1000):
            await ctx.sleep(3, key=f"turn[{n}]")

    async with app.worker(patterns=("shop.%",), runtime="other"):
        runs = [await app.start(poll) for _ in range(4)]
        await asyncio.sleep(1)
        bulk = await getattr(app.bulk, verb)(RunFilter(type="shop.poll.v1"))
        await asyncio.sleep(7)
        late = await app.start(poll)
        async with App(app.store, name="second", world=app.world).worker(patterns=("none.%",)):
            report = await bulk.result(60)
        assert (report.done, report.refused) == (4, {})
        assert report.left_out in ({}, {CHANGED: 1})
        for run in runs:
            await until(app, run, after)
        assert (await app.get(late.id)).status not in {Status.CANCELLED, Status.PAUSED}


@pytest.mark.spec("READ-3")
async def test_a_run_that_ended_meanwhile_is_left_out_of_a_cancel(app):
    order, _, _ = shop(app)
    (run,) = await failed_orders(app, order, 1)
    bulk = await app.bulk.cancel(RunFilter(type="shop.%", statuses=(Status.FAILED,)))
    await app.retry(run.id)
    async with app.worker(patterns=("shop.%",), runtime="other"):
        await until(app, run)
    async with app.worker():
        report = await bulk.result(60)
    assert (report.refused, report.left_out) == ({}, {CHANGED: 1})


@pytest.mark.spec("READ-3")
async def test_any_error_of_the_store_is_tried_again_and_not_counted(app, monkeypatch):
    order, _, _ = shop(app)
    runs = await failed_orders(app, order, 3)
    retry_run, errors = app.store.retry_run, [StoreError("disk I/O error")]

    async def failing(*args, **options):
        if errors:
            raise errors.pop()
        return await retry_run(*args, **options)

    monkeypatch.setattr(app.store, "retry_run", failing)
    async with app.worker(patterns=("none.%",)):
        assert await (await app.bulk.retry(FAILED)).result(60) == BulkReport(done=3)
    assert (errors, await retries(app, runs)) == ([], [1] * 3)
