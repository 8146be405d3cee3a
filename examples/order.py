"""An order: charge with retries, sleep, wait for the parcel, and return a receipt.

Run this file, or start a worker for it in this folder: `holdfast dev order:app`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import holdfast as hf

app = hf.App()


@dataclass
class Order:
    """The params of the workflow. Its annotation says so, and the workflow gets an object of this class."""

    id: int
    total: float


declined = {"once"}  # makes the payment service fail once


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
        # The key is the same in every attempt: the payment service can recognise a repeated call.
        return charge(order, ctx.idempotency_key)

    receipt = await ctx.step("charge", charged)
    await ctx.sleep(seconds=0.2)
    parcel = await ctx.await_event(f"parcel.{order.id}", timeout=hf.days(7))
    return f"{receipt} shipped in {parcel.payload['box']}"


async def main() -> None:
    run = await app.start(order, Order(42, 9.5), key="parcel:42")
    # A run sees all events since its start: this one is emitted before the run waits for it.
    await app.emit("parcel.42", {"box": "a small box"}, id="packed-42")
    async with app.worker():
        print(await run.result(timeout=30))
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
