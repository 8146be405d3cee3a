"""Every line that is marked with `# error` must be refused, by both checkers; no other line may be."""

from __future__ import annotations

from shop import Order, counted, nothing, order

import holdfast as hf


async def wrong(client: hf.Client) -> None:
    await client.start(nothing, 3)  # error
    await client.start(order, "tea")  # error
    await client.start(order, Order("tea"), keey="a")  # error
    await client.start(counted, 3, priority="high")  # error
    await client.list("failed")  # error
    client.cancel("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")  # error
    client.sync.start(order, "tea")  # error
    hf.Client()  # error
    hf.Client("https://host", "hf_key")  # error
