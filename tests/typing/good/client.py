"""The client has the types of an app: async, and blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

from shop import Order, Receipt, counted, nothing, order

import holdfast as hf


async def called() -> None:
    async with hf.Client("https://flows.example.com", key="hf_…", timeout=hf.seconds(5)) as client:
        assert_type(client, hf.Client)
        assert_type(await client.start(nothing), hf.Handle[str])
        handle = await client.start(order, Order("tea"), key="order:1", delay=hf.minutes(5))
        assert_type(handle, hf.Handle[Receipt])
        assert_type(await handle.result(timeout=3), Receipt)
        assert_type(await client.start(counted, 3), hf.Handle[list[int]])
        assert_type(await client.start("typed.order.v1", {"sku": "tea"}), hf.Handle[Any])
        assert_type(
            await client.start_many([(order, Order("tea"))]), "list[hf.Handle[Receipt] | hf.HoldfastError]"
        )
        assert_type(await client.get(handle.id), "hf.Run | None")
        assert_type(await client.known(handle.id), hf.Run)
        assert_type(await client.list(hf.RunFilter(), limit=3), Sequence[hf.Run])
        assert_type(await client.of(hf.ANY).trail(handle.id), Sequence[hf.TrailEntry])
        assert_type(await client.bulk.preview(hf.RunFilter()), hf.BulkPreview)
        async for entry in client.follow(handle.id):
            assert_type(entry, hf.TrailEntry)


def blocking() -> None:
    with hf.Client("https://flows.example.com", tenant=hf.ANY).sync as client:
        assert_type(client, hf.SyncClient)
        handle = client.start(order, Order("tea"))
        assert_type(handle, hf.SyncHandle[Receipt])
        assert_type(handle.result(), Receipt)
        assert_type(client.known(handle.id), hf.Run)
        for entry in client.follow(handle.id):
            assert_type(entry, hf.TrailEntry)


async def shared(client: hf.App | hf.Client) -> hf.Run:
    """A function that takes both."""
    handle = await client.start("typed.order.v1", {"sku": "tea"})
    return await client.cancel(handle.id)
