"""The workflow that `holdfast demo` runs: an order, from the shelf to the customer.

A workflow is a function. Everything that touches the world goes through `ctx`: what came of it is
recorded before the function goes on, and when another process takes over, recorded steps are
answered from the record and not run again.
"""

import asyncio
from typing import TypedDict

from holdfast import App, Backoff, Context

from .ledger import Ledger

app = App()
ledger = Ledger()


class Order(TypedDict):
    """What the run is started with."""

    order: int
    eur: float


@app.workflow("shop.order.v1")
async def fulfil(ctx: Context, order: Order) -> str:
    """Reserve, charge, pack, wait for the courier, thank."""
    shelf = await ctx.step("reserve", reserve, ctx)
    await ctx.step("charge", charge, ctx, order, retry=Backoff.fixed(0.5, attempts=3))
    parcel = await ctx.step("pack", pack, ctx, shelf)
    await ctx.sleep(1)  # could be a month: a sleeping run costs a row, nothing else
    courier = await ctx.await_event(f"picked-up:{order['order']}")
    return await ctx.step("thank", thank, ctx, parcel, courier.payload)


async def reserve(ctx: Context) -> str:
    """Find it on a shelf."""
    ledger.executes(ctx.run_id, "reserve")
    await asyncio.sleep(0.3)
    return "shelf B4"


async def charge(ctx: Context, order: Order) -> float:
    """Charge the card. The bank does not answer the first time: the engine tries again."""
    if ledger.executes(ctx.run_id, "charge") == 1:
        raise ConnectionError("no answer")
    await asyncio.sleep(0.3)
    return order["eur"]


async def pack(ctx: Context, shelf: str) -> str:
    """Pack the parcel: slow enough to be killed in the middle of it."""
    ledger.executes(ctx.run_id, "pack")
    await asyncio.sleep(1.5)
    return f"parcel from {shelf}"


async def thank(ctx: Context, parcel: str, courier: str) -> str:
    """Tell the customer."""
    ledger.executes(ctx.run_id, "thank")
    return f"{parcel} left with {courier}"
