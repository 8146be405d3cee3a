"""A schedule of a bare name starts, at each of its times, the newest version that is published then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import holdfast as hf
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import UnknownWorkflow
from tests.engine.kit import working
from tests.engine.schedules.schedule_helpers import HOUR, passes, runs


def version(app, number):
    @app.workflow(f"shop.report.v{number}")
    async def made(ctx, params: int = 0):
        return number

    return made


def at_store_of(app):
    """Return another app of the same store, as a process with other code."""
    return hf.App(app.store, world=app.world)


async def types(app):
    return [run.type for run in await runs(app)]


@pytest.mark.spec("SCHED-1", "START-6")
async def test_each_time_starts_the_newest_version_of_that_time(app):
    """By number: v10 is newer than v9."""
    version(app, 9)
    await app.publish()
    made = await app.schedule("hourly", "shop.report", 3, cron="0 * * * *", overlap="allow")
    assert made.type == "shop.report"
    await passes(app, HOUR)
    await Keeper(app.store).tick()
    later = at_store_of(app)
    version(later, 10)
    await later.publish()
    await passes(app, HOUR)
    await Keeper(app.store).tick()
    assert await types(app) == ["shop.report.v9", "shop.report.v10"]
    assert [run.params for run in await runs(app)] == [3, 3]
    assert (await app.schedule("hourly", "shop.report", 3, cron="0 * * * *", overlap="allow")).rev == 3


@pytest.mark.spec("SCHED-1")
async def test_an_object_and_a_full_type_stay_at_their_version(app):
    old = version(app, 1)
    version(app, 2)
    await app.publish()
    await app.schedule("object", old, cron="0 * * * *")
    await app.schedule("text", "shop.report.v1", cron="0 * * * *")
    await passes(app, HOUR)
    await Keeper(app.store).tick()
    assert await types(app) == ["shop.report.v1"] * 2


@pytest.mark.spec("SCHED-1")
async def test_keepers_that_see_different_versions_start_one_run_a_time(app, monkeypatch):
    """In a deploy one keeper has read the definitions before the new version was published, one after."""
    version(app, 1)
    version(app, 2)
    await app.publish()
    await app.schedule("hourly", "shop.report", cron="0 * * * *", overlap="allow")
    real, calls = app.store.definitions, []

    async def definitions():
        calls.append(1)
        await asyncio.sleep(0)
        found = await real()
        return found[:1] if len(calls) % 2 else found

    monkeypatch.setattr(app.store, "definitions", definitions, raising=False)
    for hour in range(1, 5):
        await passes(app, HOUR)
        await asyncio.gather(*(Keeper(app.store).tick() for _ in range(4)))
        assert len(await runs(app)) == hour
    assert len(calls) >= 8


@pytest.mark.spec("SCHED-1", "OPS-1")
@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("all", 3), ("none", 0)])
async def test_while_no_version_is_published_it_says_so_and_loses_nothing(app, caplog, catch_up, count):
    await app.schedule("hourly", "shop.report", cron="0 * * * *", catch_up=catch_up, overlap="allow")
    keeper = Keeper(app.store)
    for _ in range(3):
        app.world.leap(HOUR)
        await keeper.tick()
    assert await types(app) == []
    assert "cannot fire here, will retry in 5 s: no version of shop.report is published yet" in caplog.text
    (found,) = [one for one in (await app.doctor()).findings if "schedule hourly" in one.what]
    assert found.level == "error"
    assert "no version of shop.report is published yet: start a worker that has it" in found.what
    with pytest.raises(UnknownWorkflow, match=r"no version of shop\.report is published"):
        await app.fire_schedule("hourly")
    later = at_store_of(app)
    version(later, 1)
    app.world.leap(120)
    await later.publish()
    await Keeper(app.store).tick()
    assert await types(app) == ["shop.report.v1"] * count


@pytest.mark.spec("SCHED-1")
async def test_a_worker_fires_soon_after_it_has_published_and_logs_once_a_minute(app, caplog):
    await app.schedule("hourly", "shop.report", cron="0 * * * *")

    @app.workflow("shop.other.v1")
    async def other(ctx): ...

    async with working(app, poll=1):
        await passes(app, HOUR)
        await asyncio.sleep(40)
        assert len([one for one in caplog.messages if "no version of shop.report" in one]) == 1
        later = at_store_of(app)
        version(later, 1)
        await later.publish()
        await asyncio.sleep(10)
        assert await types(app) == ["shop.report.v1"]


async def test_a_schedule_fired_by_hand_starts_the_newest_version(app):
    version(app, 2)
    version(app, 11)
    await app.publish()
    await app.schedule("hourly", "shop.report", cron="0 * * * *")
    await app.fire_schedule("hourly")
    assert await types(app) == ["shop.report.v11"]
    (seen,) = await app.schedules()
    assert seen.next_at > datetime(2026, 1, 1, tzinfo=UTC)


async def test_params_are_checked_by_the_newest_version_that_is_known(app):
    version(app, 1)
    with pytest.raises(hf.UsageError):
        await app.schedule("hourly", "shop.report", "no number", cron="0 * * * *")
