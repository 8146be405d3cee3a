"""Items of `ctx.map`: recorded by their position, or by a key."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast import Backoff, StepFailed
from tests.engine.kit import keys, outcome


def shop(app, key, seen):
    """A workflow that maps other items in its second execution."""
    baskets = [["a", "b", "c"], ["b", "c", "d"]]

    @app.workflow("shop.order.v1")
    async def order(ctx):
        items = baskets[0] if ctx.run_id not in seen else baskets[1]
        seen.add(ctx.run_id)
        results = await ctx.map("price", str.upper, items, key=key)
        await ctx.sleep(1)
        return results

    return order


@pytest.mark.spec("FLOW-22")
async def test_items_with_a_key_get_their_own_results_at_any_position(app):
    order = shop(app, lambda item: item, set())
    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == ["B", "C", "D"]
    assert sorted(await keys(app, run)) == ["price[a]", "price[b]", "price[c]", "price[d]", "sleep"]


@pytest.mark.spec("FLOW-22")
async def test_items_without_a_key_get_the_result_recorded_at_their_position(app):
    order = shop(app, None, set())
    async with app.worker():
        assert await (await app.start(order)).result(60) == ["A", "B", "C"]


@pytest.mark.spec("FLOW-22")
async def test_a_map_key_is_text_a_whole_number_or_a_uuid(app):
    names = {1: "a", 2: 7, 3: UUID(int=5)}

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.map("price", str, [1, 2, 3], key=names.__getitem__)

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == ["1", "2", "3"]
    assert sorted(await keys(app, run)) == sorted(f"price[{name}]" for name in names.values())


@pytest.mark.spec("FLOW-22", "START-10")
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sku", "key='sku': give a function"),
        (lambda _: 1.5, "returned 1.5"),
        (lambda _: True, "returned True"),
    ],
)
async def test_any_other_map_key_is_refused(app, key, message):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.map("price", str, [1], key=key)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert message in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-22")
async def test_two_items_with_one_key_are_refused_before_any_is_executed(app):
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.map("price", called.append, [1, 2, 3], key=lambda item: item % 2)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert "two items have the key 'price[1]'" in (await app.get(run.id)).error.message
    assert called == []


class Shelf:
    """Picks items of a map and records the calls. The first item fails after a second."""

    def __init__(self):
        self.seen = []

    async def pick(self, item):
        self.seen.append(f"begins {item}")
        try:
            await asyncio.sleep(1 if item == 0 else 50)
        except asyncio.CancelledError:
            await asyncio.sleep(item)
            self.seen.append(f"stops {item}")
            raise
        if item == 0:
            raise LookupError(item)

    def undo(self):
        self.seen.append("undo")


@pytest.mark.spec("FLOW-22", "FLOW-26")
@pytest.mark.parametrize("how", ["async", "sync"])
async def test_the_first_failure_cancels_the_other_items_and_can_be_caught(app, how):
    """The other items have ended when the error is raised.

    An item beyond the limit never begins, nor at replay.
    """
    shelf, failed = Shelf(), []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.map("pick", shelf.pick, range(4), limit=3, retry=Backoff.none())
        except StepFailed as error:
            failed.append((error.step, error.__context__))
        await ctx.step("undo", shelf.undo)
        await ctx.sleep(100)
        return "undone"

    @app.workflow("shop.sync.v1")
    def sync_order(ctx):
        try:
            ctx.map("pick", shelf.pick, range(4), limit=3, retry=Backoff.none())
        except StepFailed as error:
            failed.append((error.step, error.__context__))
        ctx.step("undo", shelf.undo)
        ctx.sleep(100)
        return "undone"

    async with app.worker():
        run = await app.start(order if how == "async" else sync_order)
        assert await run.result(300) == "undone"
    assert shelf.seen == ["begins 0", "begins 1", "begins 2", "stops 1", "stops 2", "undo"]
    assert failed == [("pick[0]", None)] * 2
    assert await keys(app, run) == ["pick[0]", "undo", "sleep"]


@pytest.mark.spec("FLOW-22")
async def test_a_cancelled_map_ends_with_its_items(app):
    shelf = Shelf()

    @app.workflow("shop.order.v1")
    async def order(ctx):
        task = asyncio.create_task(ctx.map("pick", shelf.pick, [1, 2]))
        await ctx.step("wait", asyncio.sleep, 5)
        task.cancel()
        await asyncio.wait([task])
        return list(shelf.seen)

    async with app.worker():
        found = await (await app.start(order)).result(300)
    assert found == ["begins 1", "begins 2", "stops 1", "stops 2"]
