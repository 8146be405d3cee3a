"""`explain` of a run that others hold up: its child runs, and workers that may be dead."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import RunFilter, Status
from tests.engine.explain.test_explain import explained
from tests.engine.kit import process, until


@pytest.mark.spec("EXPL-1")
async def test_a_parent_names_the_trouble_of_its_first_open_child(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        calls = [ctx.call("shop.ship.v1", n, key=f"parcel{n}") for n in range(2)]
        await asyncio.gather(*calls, return_exceptions=True)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        found = await explained(app, run)
        first = found.data["waiting_on"][0]["child"]
        assert found.data["child"] == {"id": first, "reason": "no_worker"}
        assert f" Child run {first}, the first of 2, says: no live worker can run shop.ship.v1" in found.text
        assert f"; more: `holdfast explain {first}`." in found.text

        await app.pause(first, by="ann")
        found = await explained(app, run)
        assert found.data["child"]["reason"] == "paused"
        assert f"says: it was paused by ann: `holdfast resume {first}` lets it continue; more" in found.text
        await app.cancel(first)
        await asyncio.sleep(1)
        found = await explained(app, run)
        assert found.data["child"]["id"] != first
        assert "the first of" not in found.text


@pytest.mark.spec("EXPL-1")
async def test_a_child_that_runs_is_no_trouble_and_a_grandchild_is_named_by_the_child(app):
    @app.workflow("shop.pack.v1")
    async def pack(ctx):
        await ctx.approval("gate")

    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        await asyncio.sleep(5)
        await ctx.call(pack)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.call(ship)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        assert "child" not in (await explained(app, run)).data
        await asyncio.sleep(5)
        found = await explained(app, run)
        child = found.data["child"]["id"]
        (grandchild,) = await app.list(RunFilter(parent=child))
        assert f"Child run {child} says: it waits for its child run {grandchild.id} (" in found.text


@pytest.mark.spec("EXPL-1")
async def test_a_worker_without_a_sign_of_life_is_not_believed_in(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(500)

    dying = await process(app, 0, slots=1)
    await asyncio.sleep(1)
    dying.kill()
    run = await app.start(order)
    assert "sign of life" not in (await explained(app, run)).text
    await asyncio.sleep(34)
    found = await explained(app, run)
    assert (
        "; its last sign of life was 35 s ago; if it is dead, start one: `holdfast worker MODULE:APP`."
        in (found.text)
    )


@pytest.mark.spec("EXPL-1")
async def test_a_live_worker_without_a_free_slot_shows_its_signs_of_life(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(500)

    async with app.worker(slots=1):
        await app.start(order)
        run = await app.start(order)
        for _ in range(20):
            await asyncio.sleep(3)
            assert "sign of life" not in (await explained(app, run)).text
