"""Parents and children under crashes: the outcome is the same after a crash at any store call."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, ChildFailed, Fatal
from holdfast.testing import explore
from tests.laws.effort import longer


def family(checkpoint="step"):
    app = App("memory://")

    @app.workflow("shop.ship.v1", checkpoint=checkpoint)
    async def ship(ctx, n: int) -> int:
        if n < 0:
            raise Fatal("no such address")
        await ctx.step("pack", lambda: None)
        if n % 2:
            await ctx.sleep(n)
        return n

    @app.workflow("shop.count.v1")
    async def count(ctx, n: int) -> str:
        await ctx.sleep(1)
        if n:
            ctx.continue_as(n - 1)
        return "counted"

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx) -> list:
        await ctx.start(ship, 4, key="loose")
        first = await ctx.call(ship, 3)
        try:
            await ctx.call(ship, -1, key="bad")
        except ChildFailed as error:
            return [first, error.status, error.error.kind]

    @app.workflow("shop.orders.v1", checkpoint=checkpoint)
    async def orders(ctx) -> list:
        return await asyncio.gather(
            ctx.call(ship, 1, key="one"), ctx.call("shop.ship", 2, key="two"), ctx.call(count, 1)
        )

    return app, {"one after another": order, "at once": orders}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.spec("FLOW-7", "MOVE-2", "LEASE-14", "TEST-2")
@pytest.mark.parametrize(
    ("store", "checkpoint", "which"),
    [
        ("memory", "step", "at once"),
        ("memory", "segment", "one after another"),
        *longer(
            ("memory", "step", "one after another"),
            ("memory", "segment", "at once"),
            ("sqlite", "step", "at once"),
            ("sqlite", "step", "one after another"),
        ),
    ],
)
def test_a_parent_and_its_children_end_the_same_after_a_crash_at_any_store_call(store, checkpoint, which):
    """Calls, starts, a gather, a failure, a chain and a bare name.

    No child is started twice or lost, and every parent learns of every end.
    """
    app, workflows = family(checkpoint)
    report = explore(workflows[which], app=app, store=store)
    assert report.plays > 20


def gates():
    app = App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx) -> list:
        first = await ctx.approval("first", ask="?")
        second, _ = await asyncio.gather(ctx.approval("second", ask="?", timeout=60), ctx.sleep(2))
        return [first.approved, first.by, second.approved, second.timed_out]

    return app, order


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.spec("FLOW-6", "TEST-2")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite")])
def test_a_gate_is_decided_once_after_a_crash_at_any_store_call(store):
    app, order = gates()

    def decide(stage, run):
        for _ in range(200):
            waits = [one.step for one in stage.approvals()]
            if "first" in waits:
                stage.approve(run, "first", by="ada")
                return
            stage.advance(1)

    explore(order, app=app, store=store, script=decide)
