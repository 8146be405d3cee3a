"""The pace of looking for work: with a wake-up at every commit, and without any wake-up."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

from holdfast.engine.wake_up import Looks, WakeUp
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import Due
from holdfast.testing.faulty import Faulty, delay
from tests.engine.kit import outcome, process, until


@pytest.mark.parametrize(("cost", "looks_max"), [(0.0, 1000), (0.02, 50), (1.0, 10)])
async def test_looks_take_at_most_a_tenth_of_the_time_however_many_wake_ups_come(app, cost, looks_max):
    """A slow look that finds nothing is not repeated at once, but within a second."""
    await app.store.open()
    store = Faulty(app.store)
    store.always("due", delay(cost))
    keeper = Keeper(store)
    task = asyncio.create_task(keeper.run())
    for _ in range(1000):
        await asyncio.sleep(0.01)
        keeper.wake_up.ring()
    task.cancel()
    assert looks_max / 2 <= store.calls["due"] <= looks_max + 1


@pytest.mark.parametrize("poll", [10.0, 0.1])
async def test_a_due_run_that_was_not_found_is_looked_for_soon_and_then_seldom(poll):
    """Another worker may hold the row for a moment without a wake-up afterwards, or for hours."""
    clock, wake_up = asyncio.get_running_loop().time, WakeUp(poll)

    async def waited(due):
        at = clock()
        await wake_up.wait(due)
        return round(clock() - at, 3)

    assert [await waited(None) for _ in range(20)][-1] == poll
    assert await waited(0) == 0.02
    assert [await waited(0) for _ in range(20)][-1] == min(1.0, poll)
    assert await waited(5.0) == min(5.0, poll)
    assert await waited(0) == 0.02


@pytest.mark.spec("OPS-7")
async def test_a_sleep_tells_which_look_is_good_enough():
    """After a poll, a look of another loop in the second half of the sleep; after a change, any look that has
    begun since; a hint, or an instant that was known, is followed at once.
    """
    loop, wake_up = asyncio.get_running_loop(), WakeUp(8.0)
    clock, later = loop.time, loop.call_later
    for _ in range(20):
        await wake_up.wait(None)
    begun = clock()
    assert await wake_up.wait(None) == begun + 4
    assert await wake_up.wait(5.0) is None
    later(3, wake_up.ring_for_change)
    begun = clock()
    assert await wake_up.wait(None) == -math.inf
    assert clock() == begun + 3
    later(3, wake_up.ring_for_change)
    later(3, wake_up.ring)
    assert await wake_up.wait(None) is None
    wake_up.ring_for_change()
    await asyncio.sleep(1)
    assert await wake_up.wait(None) == -math.inf, "a change before the sleep is not missed"
    begun = clock()
    await wake_up.wait(None, begun - 6)
    assert clock() == begun + 2, "the poll time counts from the look"


@pytest.mark.spec("OPS-7")
async def test_a_look_is_shared_by_all_whose_news_are_older():
    """A look that began before the news may have missed it. One that failed is nobody's answer."""
    clock, asked = asyncio.get_running_loop().time, []

    async def ask():
        asked.append(clock())
        await asyncio.sleep(1)
        if len(asked) == 3:
            raise Unavailable("not now")
        return Due(now=0)

    looks = Looks(ask)
    begun = clock()
    first = asyncio.gather(*(looks.since(begun) for _ in range(3)))
    await asyncio.sleep(0.5)
    second = asyncio.gather(*(looks.since(clock()) for _ in range(3)))
    assert {one.asked_at for one in await first} == {begun}
    assert {one.asked_at for one in await second} == {begun + 1}
    assert (await looks.since(begun + 1)).asked_at == begun + 1
    failed, after = await asyncio.gather(*(looks.since(clock()) for _ in range(2)), return_exceptions=True)
    assert isinstance(failed, Unavailable)
    assert after.asked_at == begun + 3
    assert len(asked) == 4


@pytest.mark.spec("OPS-7")
async def test_a_look_that_began_before_a_change_is_not_shared():
    """Also when both come in one instant of the clock, and when the change comes during the look."""
    asked = []

    async def ask():
        asked.append(1)
        await asyncio.sleep(1 if len(asked) == 2 else 0)
        return Due(now=0)

    looks = Looks(ask)
    await looks.since(-math.inf)
    looks.expire()
    asyncio.get_running_loop().call_later(0.5, looks.expire)
    await asyncio.gather(*(looks.since(-math.inf) for _ in range(3)))
    assert len(asked) == 3
    await looks.since(-math.inf)
    assert len(asked) == 3


async def test_a_worker_that_sometimes_finds_runs_looks_soon_without_a_wake_up(app, monkeypatch):
    """The slots never fill up, and no wake-up comes: a found run is the only sign of more."""
    clock, took = asyncio.get_running_loop().time, []

    @app.workflow("shop.order.v1")
    async def order(ctx, at: float):
        took.append(clock() - at)

    await app.store.open()
    monkeypatch.setattr(app.store, "listen", lambda *_: lambda: None)
    async with app.worker(poll=10):
        for _ in range(100):
            await asyncio.sleep(0.05)
            await app.start("shop.order.v1", clock())
        await asyncio.sleep(10)
    assert len(took) == 100
    assert max(took) < 0.2


@pytest.mark.spec("LEASE-6")
async def test_an_expired_lease_is_found_in_time_by_a_keeper_that_polls_seldom(app, monkeypatch):
    """No wake-up comes with a claim. A short lease is found at its end, not at the next poll."""
    clock = asyncio.get_running_loop().time

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(0.1)

    await app.store.open()
    monkeypatch.setattr(app.store, "traits", msgspec.structs.replace(app.store.traits, poll_seconds=10.0))
    monkeypatch.setattr(app.store, "listen", lambda *_: lambda: None)
    first = await process(app, 1, lease=1, keeper=False, poll=0.1)
    async with app.worker(lease=1):
        await asyncio.sleep(22)  # the keeper has nothing to do, and its polls are far apart
        run = await app.start(order)
        assert (await until(app, run, Status.LEASED)).leased_by == first.worker.id
        first.kill()
        at = clock()
        assert await outcome(app, run) == ("succeeded", None)
    assert clock() - at < 2.5
