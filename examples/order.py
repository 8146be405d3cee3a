"""An order: charge with retries, wait a little, wait for the parcel, and answer with a receipt.

Run it, or be its worker: `holdfast dev order:app` in this folder.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import holdfast as hf

app = hf.App()


@dataclass
class Order:
    """Params are typed by the annotation of the workflow, and come back as this."""

    id: int
    total: float


declined = {"once"}  # stands for a payment service that fails at times


def charge(order: Order, idempotency_key: str) -> str:
    if declined:
        declined.clear()
        raise ConnectionError("the payment service did not answer")
    print(f"charged {order.total} under {idempotency_key.rpartition(':')[2]!r}")
    return f"receipt-{order.id}"


@app.workflow("mail.parcel.v1", retry=hf.Backoff.fixed(0.1, attempts=5))
async def order(ctx: hf.Context, order: Order) -> str:
    """Charge, then ship when the parcel is packed."""

    def charged() -> str:
        # The same at every try: whoever takes the money can tell a repetition from a second order.
        return charge(order, ctx.idempotency_key)

    receipt = await ctx.step("charge", charged)
    await ctx.sleep(seconds=0.2)
    parcel = await ctx.await_event(f"parcel.{order.id}", timeout=hf.days(7))
    return f"{receipt} shipped in {parcel.payload['box']}"


async def main() -> None:
    run = await app.start(order, Order(42, 9.5), key="parcel:42")
    # Events count from the start of the run on: this one is there before the run asks for it.
    await app.emit("parcel.42", {"box": "a small box"}, id="packed-42")
    async with app.worker():
        print(await run.result(timeout=30))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
