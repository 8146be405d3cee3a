"""A plain workflow through every crash there is, and beside its async twin."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, Backoff
from holdfast.testing import Rehearsal, explore
from tests.engine.kit import keys, process

STORES = ["memory", "sqlite"]


class Flaky(Exception):
    pass


async def stumbling(n):
    await asyncio.sleep(0.2)
    if n < 2:
        raise Flaky
    return n


def journeys():
    """The same twice: one of everything that both can ask for."""
    app, tries = App("memory://"), {}

    async def flaky(ctx):
        # Counted by the run and kept over crashes: the worker that takes over goes on counting.
        tries[ctx.run_id] = tries.get(ctx.run_id, -1) + 1
        return await stumbling(tries[ctx.run_id])

    retry = Backoff.of([0.1, 3])

    @app.workflow("shop.plain.v1")
    def plain(ctx, amount: int):
        charged = ctx.step("charge", lambda: amount + 1)
        ctx.log("charged")
        ctx.sleep(2)
        ctx.emit("sent", charged)
        event = ctx.await_event("sent")
        sizes = ctx.map("size", lambda item: item * 2, [1, 2, 3], limit=2)
        came = ctx.step("flaky", flaky, ctx, retry=retry)
        draw = ctx.random()
        ctx.now()
        return [charged, event.payload, sizes, came, 0 <= draw < 1]

    @app.workflow("shop.async.v1")
    async def twin(ctx, amount: int):
        charged = await ctx.step("charge", lambda: amount + 1)
        ctx.log("charged")
        await ctx.sleep(2)
        ctx.emit("sent", charged)
        event = await ctx.await_event("sent")
        sizes = await ctx.map("size", lambda item: item * 2, [1, 2, 3], limit=2)
        came = await ctx.step("flaky", flaky, ctx, retry=retry)
        draw = ctx.random()
        ctx.now()
        return [charged, event.payload, sizes, came, 0 <= draw < 1]

    return app, tries, plain, twin


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("store", STORES)
def test_a_plain_run_is_its_async_twin(store):
    """The same result, steps and trail, at the same times."""
    told = []
    for n in (1, 2):
        app, _, *both = journeys()
        with Rehearsal(app, store=store) as stage:
            run = stage.start(both[n - 1], 41)
            result, began = run.result(), run.get().created_at
            steps = [
                (one.key, one.kind, one.status, one.attempts, one.output) for one in run.steps().values()
            ]
            trail = [(one.type, one.at - began) for one in run.trail()]
            told.append((result, [one for one in steps if one[1] != "now"], trail))
    assert told[0] == told[1]
    assert told[0][0] == [42, 42, [2, 4, 6], 2, True]


@pytest.mark.slow
@pytest.mark.spec("FLOW-15", "LEASE-14", "TEST-2")
@pytest.mark.parametrize("store", STORES)
def test_a_plain_run_comes_out_the_same_whatever_happens_to_its_worker(store):
    """At every store call: dead before or after it, its reply lost, never sent, sent twice, a zombie."""
    app, tries, plain, _ = journeys()
    compare = lambda result: [*result[:3], *result[4:]]  # noqa: E731 - without how often it was tried
    report = explore(plain, 41, app=app, store=store, reset=tries.clear, compare=compare)
    assert report.plays > 50


async def test_a_killed_plain_run_replays_up_to_where_it_was(app):
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
