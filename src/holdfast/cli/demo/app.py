"""The workflow that `holdfast demo` runs: an order, from the shelf to the customer.

A workflow is a function. Everything that touches the outside world goes through `ctx`. The result of each
step is recorded before the function continues. When another process takes over the run, it gets the results
of recorded steps from the record, and does not execute these steps again.
"""

import asyncio
from typing import TypedDict

from holdfast import App, Backoff, Context

from .ledger import Ledger

app = App()
ledger = Ledger()


class Order(TypedDict):
    """The params of the run."""

    order: int
    eur: float


@app.workflow("shop.order.v1")
async def fulfil(ctx: Context, order: Order) -> str:
    """Reserve, charge, pack, wait for the courier, thank."""
    shelf = await ctx.step("reserve", reserve, ctx)
    await ctx.step("charge", charge, ctx, order, retry=Backoff.fixed(0.5, attempts=3))
    parcel = await ctx.step("pack", pack, ctx, shelf)
    await ctx.sleep(1)  # could be a month: a sleeping run needs only its row in the store
    courier = await ctx.await_event(f"picked-up:{order['order']}")
    return await ctx.step("thank", thank, ctx, parcel, courier.payload)


async def reserve(ctx: Context) -> str:
    """Reserve the article on its shelf."""
    ledger.executes(ctx.run_id, "reserve")
    await asyncio.sleep(0.3)
    return "shelf B4"


async def charge(ctx: Context, order: Order) -> float:
    """Charge the card. The bank does not answer the first time, so the engine retries the step."""
    if ledger.executes(ctx.run_id, "charge") == 1:
        raise ConnectionError("no answer")
    await asyncio.sleep(0.3)
    return order["eur"]


async def pack(ctx: Context, shelf: str) -> str:
    """Pack the parcel; this is slow enough to be killed in the middle."""
    ledger.executes(ctx.run_id, "pack")
    await asyncio.sleep(1.5)
    return f"parcel from {shelf}"


async def thank(ctx: Context, parcel: str, courier: str) -> str:
    """Thank the customer."""
    ledger.executes(ctx.run_id, "thank")
    return f"{parcel} left with {courier}"
