"""Crashed runs: a few begin at a time, alone before the last crash. They are forgiven once they survive."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status
from holdfast.engine.worker.crash_quota import crashed_quota
from tests.engine.kit import outcome, process, trail

LEASE = 30.0


@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize(
    ("held", "quota"),
    [
        ([], (16, 16, 1)),
        ([(1, 0.0, False)] * 10, (6, 6, 1)),  # runs that have just begun count
        ([(2, 0.0, False)] * 20, (0, 0, 0)),
        ([(2, 0.04, False)] * 20, (16, 16, 1)),  # and not for long
        ([(3, 1.1, False)], (16, 16, 0)),  # alone until the store knows that it survived a lease time
        ([(3, 1.1, True)], (16, 16, 1)),
    ],
)
def test_a_worker_takes_a_limited_number_of_crashed_runs(held, quota):
    assert crashed_quota(64, held) == quota


@pytest.mark.spec("LEASE-6")
def test_the_smallest_worker_takes_one_crashed_run():
    assert crashed_quota(1, []) == (1, 1, 1)


async def crashed(app, runs, times, **options):
    """Crash all the runs so many times, each time in a process of its own."""
    for n in range(times):
        one = await process(app, n + 1, lease=LEASE, **options)
        await asyncio.sleep(12)
        leased = [(await app.get(run.id)).status for run in runs]
        assert leased == [Status.LEASED] * len(runs)
        one.kill()
        await asyncio.sleep(LEASE)
    return times


@pytest.mark.spec("LEASE-6")
async def test_runs_whose_worker_was_killed_twice_from_outside_end_soon(app, world):
    """40 runs of 6 s on 40 slots end within 12 s of becoming claimable."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(6 if ctx.attempt == 3 else 100)

    runs = [await app.start(order) for _ in range(40)]
    await crashed(app, runs, 2, slots=40)
    async with app.worker(slots=40, lease=LEASE):
        while (await app.get(runs[0].id)).crashes < 2:  # noqa: ASYNC110 - virtual
            await asyncio.sleep(0.1)
        claimable_at = (await app.get(runs[0].id)).run_at
        for run in runs:
            await run.result(100)
    ended = [(await app.get(run.id)).finished_at for run in runs]
    assert (max(ended) - claimable_at).total_seconds() < 12


@pytest.mark.slow
@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_run_that_has_survived_a_lease_time_does_not_delay_others(app, checkpoint):
    """The second of two runs near their crash limit waits for a lease time, not for the end of the first.

    In a segment a finished step is not in the store yet: the run is forgiven for its lease time alone.
    """
    begun = {}

    async def reserve():
        return "reserved"

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        begun[ctx.run_id] = app.world.monotonic()
        if checkpoint == "segment" and ctx.attempt == 4:
            await ctx.step("reserve", reserve)
        await asyncio.sleep(1000)

    runs = [await app.start(order) for _ in range(2)]
    await crashed(app, runs, 2, slots=8)
    # The third time the runs begin one after the other. They are killed after the lease time of the first.
    async with app.worker(slots=8, lease=LEASE):
        await asyncio.sleep(10)
        for run in runs:
            assert (await app.get(run.id)).status is Status.LEASED
    third = await process(app, 9, slots=8, lease=LEASE)
    await asyncio.sleep(12)
    third.kill()
    begun.clear()
    async with app.worker(slots=8, lease=LEASE):
        for run in runs:
            await run.result(2000)
    first, second = sorted(begun.values())
    assert LEASE <= second - first < LEASE + 2
    for run in runs:
        assert (await app.get(run.id)).crashes == 0


@pytest.mark.slow
@pytest.mark.spec("LEASE-6")
@pytest.mark.parametrize("seconds", [0.5, 20, 200])
async def test_a_run_that_kills_its_worker_within_a_lease_time_fails_alone(app, seconds):
    """Neighbours that survive are forgiven before the last crash comes."""
    victims = []

    @app.workflow("shop.poison.v1")
    async def poison(ctx):
        await asyncio.sleep(1)
        victims[-1].kill()
        await asyncio.sleep(0)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.sleep(seconds)
        return "fine"

    good = [await app.start(order) for _ in range(10)]
    bad = await app.start(poison)
    good += [await app.start(order) for _ in range(10)]
    for seed in range(1, 40):
        victims.append(await process(app, seed, slots=32, lease=6.0))
        for _ in range(600):
            await asyncio.sleep(0.5)
            if victims[-1].world.frozen or (await app.get(bad.id)).status is Status.FAILED:
                break
        if (await app.get(bad.id)).status is Status.FAILED:
            break
    assert await outcome(app, bad) == ("failed", "lease_expired")
    assert (await trail(app, bad)).count("lease_expired") == 4
    for run in good:
        assert await outcome(app, run, 5000) == ("succeeded", "fine")
    victims[-1].kill()
