"""A sync workflow with a crash at every store call, compared with the same async workflow."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, Backoff
from holdfast.testing import Rehearsal, explore
from tests.engine.kit import keys, process
from tests.laws.effort import longer

STORES = ["memory", "sqlite"]


class Flaky(Exception):
    pass


async def stumbling(n):
    await asyncio.sleep(0.2)
    if n < 2:
        raise Flaky
    return n


def sync_and_async():
    """Two workflows with the same calls, one sync and one async."""
    app, tries = App("memory://"), {}

    async def flaky(ctx):
        # The count belongs to the run and survives crashes: the next worker continues to count.
        tries[ctx.run_id] = tries.get(ctx.run_id, -1) + 1
        return await stumbling(tries[ctx.run_id])

    retry = Backoff.of([0.1, 3])

    @app.workflow("shop.sync.v1")
    def sync_order(ctx, amount: int):
        charged = ctx.step("charge", lambda: amount + 1)
        ctx.log("charged")
        ctx.sleep(2)
        ctx.emit("sent", charged)
        event = ctx.await_event("sent")
        sizes = ctx.map("size", lambda item: item * 2, [1, 2, 3], limit=2)
        tries_made = ctx.step("flaky", flaky, ctx, retry=retry)
        draw = ctx.random()
        ctx.now()
        return [charged, event.payload, sizes, tries_made, 0 <= draw < 1]

    @app.workflow("shop.async.v1")
    async def async_order(ctx, amount: int):
        charged = await ctx.step("charge", lambda: amount + 1)
        ctx.log("charged")
        await ctx.sleep(2)
        ctx.emit("sent", charged)
        event = await ctx.await_event("sent")
        sizes = await ctx.map("size", lambda item: item * 2, [1, 2, 3], limit=2)
        tries_made = await ctx.step("flaky", flaky, ctx, retry=retry)
        draw = ctx.random()
        ctx.now()
        return [charged, event.payload, sizes, tries_made, 0 <= draw < 1]

    return app, tries, sync_order, async_order


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("store", STORES)
def test_a_sync_run_records_the_same_as_an_async_run(store):
    """The result, the steps, the trail and their times are the same."""
    records = []
    for n in (1, 2):
        app, _, *both = sync_and_async()
        with Rehearsal(app, store=store) as stage:
            run = stage.start(both[n - 1], 41)
            result, began = run.result(), run.get().created_at
            steps = [
                (one.key, one.kind, one.status, one.attempts, one.output) for one in run.steps().values()
            ]
            trail = [(one.type, one.at - began) for one in run.trail()]
            records.append((result, [one for one in steps if one[1] != "now"], trail))
    assert records[0] == records[1]
    assert records[0][0] == [42, 42, [2, 4, 6], 2, True]


@pytest.mark.slow
@pytest.mark.spec("FLOW-15", "LEASE-14", "TEST-2")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite")])
def test_a_sync_run_ends_the_same_after_a_fault_at_any_store_call(store):
    """The faults: a crash before or after each store call, a lost or repeated call, and a zombie."""
    app, tries, sync_order, _ = sync_and_async()
    compare = lambda result: [*result[:3], *result[4:]]  # noqa: E731 - without how often it was tried
    report = explore(sync_order, 41, app=app, store=store, reset=tries.clear, compare=compare)
    assert report.plays > 50


async def test_a_killed_sync_run_replays_its_recorded_steps(app):
    ran = []

    @app.workflow("shop.order.v1")
    def order(ctx):
        for name in "abcd":
            ctx.step(name, ran.append, name)
            ctx.step(f"nap {name}", asyncio.sleep, 2)
        return "done"

    run = await app.start(order)
    doomed = await process(app, 1, lease=6)
    await asyncio.sleep(5)
    doomed.kill()
    heir = await process(app, 2, lease=6)
    assert await run.result(100) == "done"
    assert ran == ["a", "b", "c", "d"]
    assert len(await keys(app, run)) == 8
    heir.kill()
