"""Long polls of many workers, for different types and for states: they ask the store a few at a time."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

import holdfast as hf
from holdfast.http.work import claims, moved
from holdfast.http.work.claims import Claims
from holdfast.http.work.moved import Moved
from holdfast.records import Ask
from holdfast.stores.memory import MemoryStore
from holdfast.world import RealWorld


class CountingStore(MemoryStore):
    """A store that counts the claims and looks that are under way at the same time."""

    def __init__(self):
        super().__init__()
        self.now, self.most, self.asked = 0, 0, 0

    async def claim(self, ask):
        return await self._counted(super().claim(ask))

    async def due(self, *args, **fields):
        return await self._counted(super().due(*args, **fields))

    async def lease_states(self, leases):
        return await self._counted(super().lease_states(leases))

    async def _counted(self, reading):
        self.now, self.asked = self.now + 1, self.asked + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await reading


@pytest.mark.spec("HTTP-3")
def test_many_sets_of_types_ask_the_store_a_few_at_a_time():
    async def played():
        app = hf.App(CountingStore())
        store = app.store
        waiting = Claims(store, RealWorld(), None)
        asks = [Ask(worker=f"w{n}", types=(f"shop.t{n}.v1",), limit=1) for n in range(50)]
        polls = [asyncio.ensure_future(waiting.claim(one, 20.0)) for one in asks]
        while store.asked < 3 * len(asks):  # noqa: ASYNC110 - claimed twice, and looked
            await asyncio.sleep(0)
        store.most = store.asked = 0
        await app.start("shop.t49.v1")  # a hint for all
        found = await polls[49]
        while store.asked < len(asks):  # noqa: ASYNC110 - the hint has reached all
            await asyncio.sleep(0)
        await waiting.close()
        return [one.type for one in found.claims], store.most

    types, most = asyncio.run(played())
    assert types == ["shop.t49.v1"]
    assert most <= claims.ASKED_AT_ONCE


@pytest.mark.spec("HTTP-3")
def test_many_workers_that_wait_for_moves_ask_the_store_a_few_at_a_time():
    async def played():
        store = CountingStore()
        await store.open()
        waiting, lease = Moved(store, RealWorld()), (uuid4(), 1)  # a lease that is lost
        await asyncio.gather(*[waiting.states([lease], [False], 20.0) for _ in range(50)])
        return store.asked, store.most

    assert asyncio.run(played()) == (50, moved.READ_AT_ONCE)
