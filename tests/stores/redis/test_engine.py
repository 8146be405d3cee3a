"""The engine on Redis: a worker executes runs with steps, sleeps, events and children."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from servers.redis_store import make


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_worker_executes_runs_to_their_end():
    store = make(None)
    app = hf.App(store)
    calls = []

    @app.workflow("shop.child.v1")
    async def child(ctx, n: int) -> int:
        return await ctx.step("double", lambda: n * 2)

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> list:
        first = await ctx.step("first", lambda: calls.append(n) or n)
        await ctx.sleep(seconds=0.05)
        event = await ctx.await_event(f"paid-{n}")
        twice = await ctx.call(child, n)
        return [first, event.payload, twice]

    async def main():
        await store.open()
        async with app.worker():
            handles = [await app.start(order, n) for n in range(5)]
            for n in range(5):
                await app.emit(f"paid-{n}", n)
            results = [await asyncio.wait_for(handle.result(), 20) for handle in handles]
        await store.close()
        return results

    assert asyncio.run(main()) == [[n, n, 2 * n] for n in range(5)]
    assert sorted(calls) == list(range(5))
