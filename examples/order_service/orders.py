"""The workflow of an order: an approval if it is large, a charge, a webhook to the warehouse, its answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import holdfast as hf

app = hf.App(name="orders")  # HOLDFAST_STORE=postgresql://…
log = logging.getLogger("orders")

LARGE_CENTS = 100_000


@dataclass
class Order:
    """An order, as the web process takes it."""

    number: int
    cents: int
    email: str


async def charge(ctx: hf.Context, order: Order) -> str:
    """Call the bank here, and give it the key: it recognises a repeated call."""
    log.info("charging %d cents with key %s", order.cents, ctx.idempotency_key)
    return f"receipt-{order.number}"


async def tell_warehouse(ctx: hf.Context, number: int, receipt: str) -> None:
    """The message is part of the commit that records this step, and is delivered after it."""
    ctx.send("warehouse", {"order": number, "receipt": receipt}, key=str(number))


@app.workflow("orders.place.v1")
async def place(ctx: hf.Context, order: Order) -> str:
    if order.cents > LARGE_CENTS:
        gate = await ctx.approval(
            "large-order",
            ask=f"Charge {order.cents / 100:.2f} EUR to {order.email}?",
            data={"order": order.number, "cents": order.cents},
            timeout=hf.days(3),
        )
        if not gate.approved:
            return f"refused by {gate.by or 'nobody in three days'}"
    receipt = await ctx.step("charge", charge, ctx, order)
    await ctx.step("tell-warehouse", tell_warehouse, ctx, order.number, receipt)
    try:
        shipped = await ctx.await_event(f"shipped.{order.number}", timeout=hf.days(14))
    except hf.EventTimeout:
        return f"{receipt}, not shipped in two weeks"
    return f"{receipt}, parcel {shipped.payload['parcel']}"
