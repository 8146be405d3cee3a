"""Pacing of wake-ups: many woken runs do not block other runs, because workers set the pace."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.lifecycle import Status
from holdfast.stores.pacing import BUSY_SECONDS, IDLE_MAX, PACED_SECONDS, SMALLEST, Pace
from tests.engine.kit import outcome

SLOTS = 20


class Workers:
    """Simulated workers that take a number of woken runs each second, beginning after a while."""

    def __init__(self, a_second=0.0, *, after=0.0, live=True):
        self.a_second, self.live = a_second, live
        self._clock = asyncio.get_running_loop().time
        self.begin, self.taken, self.woken = self._clock() + after, 0.0, 0

    async def pending(self, runs):
        took = max(0.0, self._clock() - self.begin) * self.a_second
        self.taken = min(took, self.woken)
        return min(len(runs), round(self.woken - self.taken))

    async def served(self, _runs):
        return self.live

    async def slices(self, count, limit=100):
        """Wake so many runs as `emit` does. Return the time and the largest number of pending runs."""
        begun, most, pace, left = self._clock(), 0.0, Pace(self.pending, self.served), count
        while left > 0:
            size = min(left, pace.size(limit))
            await self.pending(())
            self.woken, left = self.woken + size, left - size
            most = max(most, self.woken - self.taken)
            await pace.after(range(size))
        return self._clock() - begun, most


@pytest.mark.spec("EVENT-3")
@pytest.mark.parametrize("a_second", [40, 150])
async def test_runs_are_woken_as_fast_as_workers_take_them(world, a_second):
    """At most a second of work is pending, except for the first slice. No worker is idle meanwhile."""
    took, _ = await Workers(a_second).slices(a_second * 20)
    assert took == pytest.approx(20, abs=1)
    workers = Workers(a_second)
    workers.woken = 100
    pace = Pace(workers.pending, workers.served)
    await pace.after(range(100))
    assert SMALLEST <= pace.size(100) <= a_second // 2


@pytest.mark.spec("EVENT-3")
async def test_busy_slots_do_not_end_the_pacing(world):
    """Live workers take no run for two seconds."""
    _, most = await Workers(200, after=2.0).slices(2000)
    assert most <= 250


@pytest.mark.spec("EVENT-3")
@pytest.mark.parametrize(("live", "seconds"), [(False, 0.4 * IDLE_MAX), (True, BUSY_SECONDS + 0.5)])
async def test_without_live_workers_all_runs_are_woken_soon(world, live, seconds):
    """No worker is live, or none has claimed for long."""
    took, _ = await Workers(live=live).slices(20_000)
    assert took < seconds


@pytest.mark.spec("EVENT-3")
async def test_the_emitter_waits_no_longer_than_a_bound(world):
    """The bound holds however slow the workers are."""
    took, _ = await Workers(5).slices(5000)
    assert took < PACED_SECONDS + 1


@pytest.mark.slow
@pytest.mark.spec("EVENT-3")
async def test_a_small_run_beside_many_woken_runs_gets_its_turn(app, world):
    """All slots are busy again and again, for longer than the time after which workers count as absent."""

    @app.workflow("many.wait.v1")
    async def waiter(ctx):
        await ctx.await_event("go")
        await ctx.step("work", lambda: asyncio.sleep(0.6))

    @app.workflow("few.run.v1")
    async def few(ctx):
        return 1

    async with app.worker(slots=SLOTS):
        await app.start_many([(waiter, None)] * 500)
        while (await app.store.stats()).by_status[Status.WAITING] < 500:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        emitting = asyncio.create_task(app.emit("go"))
        await asyncio.sleep(6)
        begun = world.now()
        assert await outcome(app, await app.start(few)) == ("succeeded", 1)
        assert (world.now() - begun) / 1e6 < 2.0
        assert (await emitting).woken == 500
