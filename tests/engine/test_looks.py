"""How often a keeper looks while hints come with every commit."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.keeper import Keeper
from tests.engine.faulty import Faulty, delay


@pytest.mark.parametrize(("cost", "looks_max"), [(0.0, 1000), (0.02, 50), (1.0, 10)])
async def test_looks_take_a_tenth_of_the_time_however_many_hints_come(app, cost, looks_max):
    """A look that finds nothing may be slow; then it is not made again at once. But within a second it is."""
    await app.store.open()
    store = Faulty(app.store)
    store.always("tick", delay(cost))
    keeper = Keeper(store)
    task = asyncio.create_task(keeper.run())
    for _ in range(1000):
        await asyncio.sleep(0.01)
        keeper.bell.ring()
    task.cancel()
    assert looks_max / 2 <= store.calls["tick"] <= looks_max + 1
