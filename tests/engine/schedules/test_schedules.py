"""Schedules in virtual time: nights of changed clocks, keepers that race and die, hours of downtime."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import holdfast as hf
from holdfast.engine.worker.keeper import Keeper
from holdfast.lifecycle import Status
from holdfast.records import ANY
from holdfast.testing import VirtualWorld
from holdfast.testing.faulty import Faulty, die_after, die_before, lose_reply, send_twice
from tests.engine.kit import process, until, working
from tests.engine.schedules.schedule_helpers import DAY, HOUR, passes, report, runs


def long_report(app, seconds):
    @app.workflow("shop.report.v1")
    async def made(ctx, params=None):
        await ctx.sleep(seconds)

    return made


async def fire_times(app, tenant="default"):
    """Return the times that have started runs, from their labels."""
    return [run.labels["fire_at"] for run in await runs(app, tenant)]


def at(text):
    return f"{text}:00+00:00"


@pytest.mark.spec("SCHED-1")
async def test_a_schedule_starts_a_run_at_each_of_its_times(app):
    """Each run starts exactly at its time, with the params and with the time in a label."""
    await app.schedule("nightly", report(app), {"n": 1}, cron="0 3 * * *", labels={"team": "billing"})
    async with working(app):
        await passes(app, 2 * DAY + 1)
    found = await runs(app)
    assert [run.created_at.isoformat() for run in found] == [at("2026-01-01T03:00"), at("2026-01-02T03:00")]
    assert [run.status for run in found] == [Status.SUCCEEDED] * 2
    assert found[0].params == {"n": 1}
    assert found[0].labels == {"team": "billing", "schedule": "nightly", "fire_at": at("2026-01-01T03:00")}
    (seen,) = await app.schedules()
    assert (seen.fired, seen.last_run, seen.skipped) == (2, found[-1].id, 0)
    assert seen.next_at == datetime(2026, 1, 3, 3, tzinfo=UTC)


@pytest.mark.spec("SCHED-1")
async def test_a_run_can_read_the_time_that_it_stands_for(app):
    """The label can be read in async code, in sync code and in a plan; a run without labels has none."""
    read = []

    @app.workflow("shop.code.v1")
    async def code(ctx):
        read.append(ctx.labels)

    @app.workflow("shop.sync.v1")
    def sync(ctx):
        read.append(ctx.labels)

    plan = app.plan("shop.plan.v1", [hf.Task("A")])

    @plan.task("A")
    async def first(task):
        read.append(task.labels)

    for workflow in (code, sync, plan):
        await app.schedule("s", workflow, cron="0 * * * *", labels={"team": "x"})
        async with working(app):
            await passes(app, HOUR + 1)
            await until(app, await app.start(workflow))
        await app.unschedule("s")
    hours = [one.get("fire_at") for one in read]
    assert hours == [at("2026-01-01T01:00"), None, at("2026-01-01T02:00"), None, at("2026-01-01T03:00"), None]
    assert read[0] == {"team": "x", "schedule": "s", "fire_at": hours[0]}
    assert read[1] == {}


@pytest.mark.spec("SCHED-1")
async def test_an_interval_goes_on_from_where_it_was_made_and_does_not_drift(app):
    """A repeated definition, as at every start of an app, changes nothing."""
    made = report(app)
    await asyncio.sleep(7)
    first = await app.schedule("often", made, every=hf.minutes(10))
    async with working(app):
        for _ in range(5):
            await passes(app, 431)
            assert (await app.schedule("often", made, every=600)).id == first.id
    times = [run.created_at for run in await runs(app)]
    assert [time - times[0] for time in times] == [timedelta(minutes=10) * n for n in range(3)]
    assert times[0] == datetime(2026, 1, 1, 0, 10, 7, tzinfo=UTC)


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("cron", "night", "wanted"),
    [
        ("30 2 * * *", datetime(2026, 3, 29, tzinfo=UTC), ["01:00"]),
        ("30 2 * * *", datetime(2026, 10, 25, tzinfo=UTC), ["00:30"]),
        ("0 * * * *", datetime(2026, 3, 29, tzinfo=UTC), ["00:00", "01:00", "02:00", "03:00"]),
        ("0 * * * *", datetime(2026, 10, 25, tzinfo=UTC), ["00:00", "01:00", "02:00", "03:00"]),
    ],
)
async def test_the_nights_when_the_clock_is_changed(app, cron, night, wanted):
    """In Berlin: skipped at 01:00 UTC in March, repeated until 01:00 UTC in October."""
    app.world.leap((night - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds() - 60)
    await app.schedule("night", report(app), cron=cron, zone="Europe/Berlin")
    async with working(app):
        await passes(app, 3 * HOUR + 120)
    assert [f"{run.created_at:%H:%M}" for run in await runs(app)] == wanted


@pytest.mark.spec("SCHED-1", "OPS-1")
async def test_many_keepers_start_one_run_a_time(app):
    """All keepers look at the same instant."""
    await app.schedule("hourly", report(app), cron="0 * * * *", overlap="allow")
    for seed in range(1, 5):
        await process(app, seed)
    await passes(app, 10 * HOUR + 1)
    assert len(await runs(app)) == 10
    assert len(set(await fire_times(app))) == 10
    assert (await app.schedules())[0].fired == 10


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("fault", [die_before, die_after])
@pytest.mark.parametrize("verb", ["due_schedules", "fire_schedule"])
async def test_a_keeper_that_dies_while_it_fires_leaves_one_run(app, verb, fault):
    """It dies between looking and firing, or before it gets the answer; as a zombie it changes nothing."""
    await app.schedule("hourly", report(app), cron="0 * * * *")
    dying = VirtualWorld(seed=9)
    store = Faulty(app.store)
    store.plan(verb, 1, fault(dying))
    task = dying.spawn(Keeper(store).run(dying.spawn), "dying")
    await passes(app, HOUR + 60)
    assert dying.frozen
    async with working(app):
        await asyncio.sleep(60)
        assert await fire_times(app) == [at("2026-01-01T01:00")]
        dying.thaw()
        await asyncio.sleep(60)
        assert await fire_times(app) == [at("2026-01-01T01:00")]
    task.cancel()


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("fault", [lose_reply, send_twice])
async def test_a_lost_reply_fires_nothing_twice(app, fault):
    """The repeated call finds that the schedule has moved on."""
    await app.schedule("hourly", report(app), cron="0 * * * *", overlap="allow")
    store = Faulty(app.store)
    for n in range(1, 6):
        store.plan("fire_schedule", n, fault)
    await process(app, 1, store=store)
    await passes(app, 5 * HOUR + 60)
    assert await fire_times(app) == [at(f"2026-01-01T0{n}:00") for n in range(1, 6)]


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("catch_up", "wanted"),
    [("none", [6]), ("one", [5, 6]), ("all", [1, 2, 3, 4, 5, 6])],
)
async def test_after_hours_without_a_keeper(app, catch_up, wanted):
    """Catch-up fires none of the missed times, the latest, or all."""
    await app.schedule("hourly", report(app), cron="0 * * * *", catch_up=catch_up, overlap="allow")
    app.world.leap(5.5 * HOUR)
    async with working(app):
        await passes(app, HOUR)
    assert await fire_times(app) == [at(f"2026-01-01T0{n}:00") for n in wanted]
    (seen,) = await app.schedules()
    missed = {"none": 5, "one": 4, "all": None}[catch_up]
    assert (seen.last_missed_at and seen.last_missed_at.hour) == missed


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("catch_up", ["none", "one", "all"])
async def test_a_keeper_that_is_a_little_late_has_missed_nothing(app, catch_up):
    """A delay of seconds is no downtime, for every setting of catch-up."""
    await app.schedule("hourly", report(app), cron="0 * * * *", catch_up=catch_up)
    app.world.leap(HOUR + 30)
    async with working(app):
        await asyncio.sleep(1)
    assert await fire_times(app) == [at("2026-01-01T01:00")]


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
async def test_a_long_catch_up_goes_in_slices(app):
    """Hundreds of times are fired, each once, in order."""
    await app.schedule("often", report(app), every=60, catch_up="all", overlap="allow")
    app.world.leap(DAY)
    keeper = Keeper(app.store)
    assert [(await keeper.tick()).fired for _ in range(2)] == [1440, 0]
    times = await fire_times(app)
    assert len(set(times)) == 1440
    assert times == sorted(times)


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("overlap", "begun", "skipped"),
    [("skip", [1, 4, 7], 4), ("allow", [1, 2, 3, 4, 5, 6, 7], 0), ("queue", [1, 3.5, 6], 0)],
)
async def test_times_that_come_while_a_run_is_open(app, overlap, begun, skipped):
    """The runs take two and a half hours and are due every hour."""
    await app.schedule("hourly", long_report(app, 2.5 * HOUR), cron="0 * * * *", overlap=overlap)
    async with working(app):
        await passes(app, 7 * HOUR + 60)
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    hours = [(run.created_at - midnight).total_seconds() / HOUR for run in await runs(app)]
    assert hours == pytest.approx(begun, abs=0.001)
    (seen,) = await app.schedules()
    assert (seen.skipped, len(seen.waiting)) == (skipped, 4 if overlap == "queue" else 0)
    assert await fire_times(app) == [at(f"2026-01-01T0{n}:00") for n in _times(overlap, begun)]


def _times(overlap, begun):
    """Return the times of the runs. A queued run keeps its own time, however late it starts."""
    return range(1, 1 + len(begun)) if overlap == "queue" else begun


@pytest.mark.spec("SCHED-1")
async def test_the_queue_is_worked_off_when_the_runs_are_short_again(app):
    """Each queued time becomes a run, one after the other."""
    lasts = [4.5 * HOUR]

    @app.workflow("shop.report.v1")
    async def made(ctx):
        await ctx.sleep(lasts.pop() if lasts else 60)

    await app.schedule("hourly", made, cron="0 * * * *", overlap="queue")
    async with working(app):
        await passes(app, 6 * HOUR - 60)
    assert await fire_times(app) == [at(f"2026-01-01T0{n}:00") for n in range(1, 6)]
    found = await runs(app)
    assert all(one.finished_at <= next_.created_at for one, next_ in pairwise(found))


@pytest.mark.spec("SCHED-1")
async def test_a_paused_schedule_misses_its_times(app):
    """After a resume it goes on with the next time: catch-up concerns only times without a keeper."""
    await app.schedule("hourly", report(app), cron="0 * * * *", catch_up="all")
    async with working(app):
        await app.pause_schedule("hourly", by="Ann")
        await passes(app, 3.5 * HOUR)
        assert await runs(app) == []
        seen = await app.resume_schedule("hourly")
        assert (seen.paused, seen.next_at) == (False, datetime(2026, 1, 1, 4, tzinfo=UTC))
        assert (await app.resume_schedule("hourly")).rev == seen.rev
        await passes(app, HOUR)
    assert await fire_times(app) == [at("2026-01-01T04:00")]


@pytest.mark.spec("SCHED-1")
async def test_fired_by_hand_a_run_starts_at_once(app):
    """The run is outside the rhythm, and each call starts one."""
    await app.schedule("hourly", report(app), "x", cron="0 * * * *")
    await asyncio.sleep(600)
    async with working(app):
        run = await app.fire_schedule("hourly")
        assert await run.result(timeout=10) == "x"
        other = await app.fire_schedule("hourly")
        await until(app, other)
        await passes(app, HOUR - 600)
    assert run.id != other.id
    assert (await run.get()).labels["schedule"] == "hourly"
    assert len(await runs(app)) == 3


@pytest.mark.spec("SCHED-1")
async def test_a_schedule_removed_and_made_again_fires_a_time_once(app):
    """This happens when a deploy is repeated within the same second."""
    made = report(app)
    await app.schedule("hourly", made, cron="0 * * * *")
    await passes(app, HOUR - 1)
    async with working(app):
        await asyncio.sleep(1.5)
        assert await app.unschedule("hourly")
        app.world.leap(-1)  # the clock is set back
        await app.schedule("hourly", made, cron="0 * * * *")
        await asyncio.sleep(2)
    assert await fire_times(app) == [at("2026-01-01T01:00")]


@pytest.mark.spec("SCHED-1")
async def test_a_clock_that_jumps_back_fires_nothing_twice(app):
    """Times that the schedule has fired stay fired."""
    await app.schedule("hourly", report(app), cron="0 * * * *", overlap="allow")
    async with working(app):
        await passes(app, 3 * HOUR + 1)
        app.world.leap(-2 * HOUR)
        await passes(app, 3 * HOUR + 1)
    assert await fire_times(app) == [at(f"2026-01-01T0{n}:00") for n in range(1, 5)]


@pytest.mark.spec("SCHED-1")
async def test_jitter_lets_runs_begin_later_never_earlier(app):
    """Each time has its own delay, which is the same for every keeper."""
    await app.schedule("hourly", report(app), cron="0 * * * *", jitter=hf.minutes(10))
    async with working(app):
        await passes(app, 10 * HOUR + 700)
    later = [
        (run.started_at - datetime.fromisoformat(run.labels["fire_at"])).total_seconds()
        for run in await runs(app)
    ]
    assert len(later) == 10
    assert len({round(one) for one in later}) > 5
    assert all(0 <= one < 601 for one in later)


@pytest.mark.spec("SCHED-1")
async def test_schedules_of_tenants_are_separate(app):
    """Two tenants may use the same name; each schedule starts runs of its own tenant."""
    made = report(app)
    await app.schedule("hourly", made, "ours", cron="0 * * * *")
    await app.schedule("hourly", made, "theirs", cron="0 * * * *", tenant="acme")
    async with working(app):
        await passes(app, HOUR + 1)
    assert [run.params for run in await runs(app)] == ["ours"]
    assert [run.params for run in await runs(app, "acme")] == ["theirs"]
    assert [one.tenant for one in await app.schedules(tenant=ANY)] == ["acme", "default"]
