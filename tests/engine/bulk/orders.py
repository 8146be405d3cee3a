"""Orders that fail until they are mended, for tests of bulk operations."""

from __future__ import annotations

import asyncio

from holdfast import Fatal
from tests.engine.kit import until


def shop(app):
    """A workflow that fails until it is mended, and its calls."""
    calls, mended = [], []

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int) -> int:
        calls.append(n)
        await ctx.step("pack", lambda: n)
        if not mended:
            raise Fatal("out of stock")
        return n

    return order, calls, mended


async def failed_orders(app, order, count, **options):
    runs = [await app.start(order, n, **options) for n in range(count)]
    async with app.worker():
        for run in runs:
            await until(app, run)
    await asyncio.sleep(1)
    return runs


async def retries(app, runs):
    """Return how often each run was retried, by the trail."""
    return [len(await app.trail(run.id, types=("retried",))) for run in runs]
