"""How often a loop looks: hints come with every commit, or nobody gives one."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.keeper import Bell, Keeper
from tests.engine.faulty import Faulty, delay


@pytest.mark.parametrize(("cost", "looks_max"), [(0.0, 1000), (0.02, 50), (1.0, 10)])
async def test_looks_take_a_tenth_of_the_time_however_many_hints_come(app, cost, looks_max):
    """A look that finds nothing may be slow; then it is not made again at once. But within a second it is."""
    await app.store.open()
    store = Faulty(app.store)
    store.always("due", delay(cost))
    keeper = Keeper(store)
    task = asyncio.create_task(keeper.run())
    for _ in range(1000):
        await asyncio.sleep(0.01)
        keeper.bell.ring()
    task.cancel()
    assert looks_max / 2 <= store.calls["due"] <= looks_max + 1


@pytest.mark.parametrize("poll", [10.0, 0.1])
async def test_what_was_due_and_not_found_is_looked_for_again_soon_and_then_seldom(poll):
    """Somebody has it for a moment, and does not ring when he lets go; or nobody gets it for hours."""
    clock, bell = asyncio.get_running_loop().time, Bell(poll)

    async def waited(due):
        at = clock()
        await bell.wait(due)
        return round(clock() - at, 3)

    assert [await waited(None) for _ in range(20)][-1] == poll
    assert await waited(0) == 0.02
    assert [await waited(0) for _ in range(20)][-1] == min(1.0, poll)
    assert await waited(5.0) == min(5.0, poll)
    assert await waited(0) == 0.02


async def test_a_worker_that_finds_something_now_and_then_needs_no_hint_to_look_soon(app, monkeypatch):
    """Its slots never fill up, and nobody rings: that it has found something is the only sign of more."""
    clock, took = asyncio.get_running_loop().time, []

    @app.workflow("shop.order.v1")
    async def order(ctx, at: float):
        took.append(clock() - at)

    await app.store.open()
    monkeypatch.setattr(app.store, "listen", lambda _hint: lambda: None)
    async with app.worker(poll=10):
        for _ in range(100):
            await asyncio.sleep(0.05)
            await app.start("shop.order.v1", clock())
        await asyncio.sleep(10)
    assert len(took) == 100
    assert max(took) < 0.2
