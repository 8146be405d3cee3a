"""Thousands of children of one parent: started in one commit. Not every end executes the parent again."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import RunFilter
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore

MANY, SOME, SLOTS = 2_000, 100, 100


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.spec("FLOW-7")
async def test_a_parent_of_thousands_of_children_is_executed_only_a_few_times(app):
    """Due children go before a parent that has just been woken, so the parent finds many ends at once.

    On a server each answer takes a turn of the loop, and no virtual time: so there the parent, which is
    older, may come once with each hundred of ends.
    """
    executed = []

    @app.workflow("shop.ship.v1")
    async def ship(ctx, n: int) -> int:
        return n

    @app.workflow("shop.order.v1")
    async def order(ctx, many: int) -> int:
        executed.append(1)
        return sum(await asyncio.gather(*[ctx.call(ship, n, key=f"c:{n}") for n in range(many)]))

    most = 5 if isinstance(app.store, MemoryStore | SqliteStore) else MANY // SLOTS
    async with app.worker(slots=SLOTS):
        run = await app.start(order, MANY)
        assert await run.result(600) == sum(range(MANY))
    assert len(executed) <= most
    assert len(await app.list(RunFilter(parent=run.id), 10_000)) == MANY


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_every_execution_sees_child_ends_in_the_order_in_which_they_happened(app):
    """Each end wakes the parent. However many branches there are, each branch gets its own answer."""
    orders = []

    @app.workflow("shop.ship.v1")
    async def ship(ctx, n: int) -> int:
        await ctx.sleep(n * 7 % SOME)
        return n

    @app.workflow("shop.order.v1")
    async def order(ctx) -> None:
        seen = []

        async def one(n):
            seen.append(await ctx.call(ship, n, key=f"c:{n}"))

        await asyncio.gather(*[one(n) for n in range(SOME)])
        orders.append(seen)
        await ctx.sleep(5)

    async with app.worker(slots=SLOTS):
        run = await app.start(order)
        await run.result(1000)
    assert len(orders) == 2
    assert orders[0] == orders[1] == sorted(range(SOME), key=lambda n: n * 7 % SOME)
