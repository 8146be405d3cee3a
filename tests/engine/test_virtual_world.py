"""The virtual world itself: time passes without waiting, and processes can be killed at any point."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.testing import Deadlock, VirtualWorld, play


async def test_hours_pass_in_no_time():
    begun, loop = time.monotonic(), asyncio.get_running_loop()
    await asyncio.sleep(30 * 86400)
    assert loop.time() == pytest.approx(30 * 86400, abs=1e-5)
    assert time.monotonic() - begun < 1


async def test_timers_fire_in_the_order_of_their_times():
    fired_at = []

    async def ring(after):
        await asyncio.sleep(after)
        fired_at.append(after)

    await asyncio.gather(ring(3), ring(1), ring(2))
    assert fired_at == [1, 2, 3]


async def test_the_wall_clock_and_the_monotonic_clock_agree(world):
    before = world.now()
    await asyncio.sleep(1.5)
    assert world.now() - before == 1_500_000


def test_a_play_that_can_never_end_raises_deadlock():
    async def stuck():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="nothing is scheduled"):
        play(stuck)


def test_leftover_tasks_are_cancelled():
    ended = []

    async def endless():
        try:
            await asyncio.sleep(10**9)
        finally:
            ended.append(True)

    async def scene():
        scene.task = asyncio.create_task(endless())
        await asyncio.sleep(0)

    play(scene)
    assert ended == [True]


def test_the_error_of_a_forgotten_task_is_raised_by_the_play():
    async def scene():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        play(scene)


def test_the_same_seed_gives_the_same_world():
    async def scene():
        world = VirtualWorld(seed=7)
        return world.chance(), world.uuid7(), world.place(), world.dice("a").random()

    assert play(scene) == play(scene)


async def test_ids_made_in_one_instant_are_in_order(world):
    made = [world.uuid7() for _ in range(100)]
    assert made == sorted(made)


async def test_a_frozen_process_runs_nothing_not_even_its_cleanup(world):
    actions = []

    async def work():
        try:
            await asyncio.sleep(1)
            actions.append("worked")
        finally:
            actions.append("cleaned up")

    world.spawn(work(), "work")
    await asyncio.sleep(0.5)
    world.freeze()
    await asyncio.sleep(10)
    assert actions == []


async def test_a_thawed_process_continues_where_it_was_frozen(world):
    actions = []

    async def work():
        await asyncio.sleep(1)
        actions.append(world.monotonic())

    world.spawn(work(), "work")
    await asyncio.sleep(0.5)
    world.freeze()
    await asyncio.sleep(10)
    world.thaw()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert actions == [10.5]


async def test_a_leap_of_the_clock_fires_a_passed_timer_once(world):
    fired_at = []

    async def poll():
        while True:
            await asyncio.sleep(1)
            fired_at.append(world.monotonic())

    world.spawn(poll(), "poll")
    await asyncio.sleep(0)
    world.leap(86400)
    await asyncio.sleep(0.5)
    assert fired_at == [86400]


async def test_a_pulse_beats_at_its_interval_and_when_asked(world):
    beats = []
    pulse = world.pulse(lambda: beats.append(world.monotonic()), 10, "pulse")
    await asyncio.sleep(10)
    await asyncio.sleep(5)
    pulse.ask()
    pulse.ask()
    await asyncio.sleep(9)
    await pulse.stop()
    await asyncio.sleep(100)
    assert beats == [10, 15]


async def test_timers_still_fire_after_years(world):
    """A float of that many seconds is too coarse to hold one nanosecond more."""
    world.leap(10 * 365 * 86400)
    for _ in range(10):
        await asyncio.sleep(0.02)
    assert world.monotonic() == pytest.approx(10 * 365 * 86400 + 0.2)
