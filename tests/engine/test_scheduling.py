"""The verbs of schedules: what they take, what they refuse, and what a codec does to them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast import App
from holdfast.engine.keeper import Keeper
from holdfast.engine.scheduling import upcoming
from holdfast.errors import UnknownSchedule, UsageError
from holdfast.lifecycle import Status
from holdfast.records import SECOND, RunFilter, instant

from .kit import working
from .timetable import HOUR, passes, report, runs


async def test_another_rhythm_begins_anew_and_other_params_do_not(app):
    """What is said last counts."""
    made = report(app)
    first = await app.schedule("s", made, every=HOUR)
    await asyncio.sleep(600)
    same = await app.schedule("s", made, {"n": 2}, every=HOUR, overlap="allow", priority=3)
    assert (same.next_at, same.anchor_at, same.params) == (first.next_at, first.anchor_at, {"n": 2})
    assert (same.overlap, same.priority) == ("allow", 3)
    other = await app.schedule("s", made, {"n": 2}, every=2 * HOUR)
    assert other.next_at == first.next_at + timedelta(seconds=HOUR + 600)


async def test_a_schedule_that_cannot_be_fired_stands_in_nobodys_way(store, world, caplog):
    """One that was encrypted, where there is no key, is left, and said once a minute in the log."""
    sealed = App(store, world=world, codec=hf.Encrypt({"a": bytes(32)}))
    app = App(store, world=world)
    await sealed.schedule("secret", "shop.report.v1", {"n": 1}, cron="0 * * * *")
    await app.schedule("plain", report(app), cron="0 * * * *")
    async with working(app):
        await passes(app, HOUR)
        await asyncio.sleep(50)
    assert [run.labels["schedule"] for run in await runs(app)] == ["plain"]
    told = [one.message for one in caplog.records if "cannot be fired here" in one.message]
    assert len(told) == 1
    assert "schedule secret of default" in told[0]


async def test_sealed_params_are_sealed_again_for_each_run(store, world):
    """The store never sees them, and the worker opens them under the run's own id."""
    app = App(store, world=world, codec=hf.Encrypt({"a": bytes(32)}))
    made = report(app)
    first = await app.schedule("hourly", made, {"secret": 1}, cron="0 * * * *")
    assert await app.schedule("hourly", made, {"secret": 1}, cron="0 * * * *") == first
    (kept,) = await store.schedules("default")
    assert "secret" not in kept.params_json
    async with working(app):
        await passes(app, HOUR + 1)
    (run,) = await runs(app)
    assert (run.status, run.result) == (Status.SUCCEEDED, {"secret": 1})
    (seen,) = await store.list(RunFilter())
    assert "secret" not in seen.params_json


@pytest.mark.spec("SCHED-1")
async def test_params_are_sealed_anew_when_the_keys_have_changed(store, world):
    """A deploy says the same again, now with a newer key: then the old one can go."""
    old, new = {"old": bytes(32)}, {"new": b"n" * 32}

    def at(keys, newest):
        app = App(store, world=world, codec=hf.Encrypt(keys, newest=newest))
        return app, report(app)

    app, made = at(old, "old")
    first = await app.schedule("hourly", made, {"n": 1}, cron="0 * * * *")
    app, made = at(old | new, "new")
    again = await app.schedule("hourly", made, {"n": 1}, cron="0 * * * *")
    assert (again.next_at, again.params, again.id) == (first.next_at, {"n": 1}, first.id)
    assert await app.schedule("hourly", made, {"n": 1}, cron="0 * * * *") == again
    app, made = at(new, "new")
    async with working(app):
        await passes(app, HOUR + 1)
    assert [run.result for run in await runs(app)] == [{"n": 1}]


async def test_a_workflow_may_be_named_and_need_not_be_known_yet(app):
    """By its type, or as the newest that is published."""
    report(app)
    await app.publish()
    assert (await app.schedule("a", "shop.report", every=60)).type == "shop.report.v1"
    assert (await app.schedule("b", "not.known.v1", every=60)).type == "not.known.v1"
    await asyncio.sleep(60)
    assert (await Keeper(app.store).tick()).fired == 2


async def test_the_next_times_can_be_asked_for(app):
    """Also of a paused one."""
    one = await app.schedule("nightly", report(app), cron="0 3 * * *", zone="Europe/Berlin")
    now = instant(datetime(2026, 3, 28, tzinfo=UTC))
    times = upcoming(one, now, 3)
    assert [(when - now) / SECOND / HOUR for when in times] == [2, 25, 49]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "0 3 * * *", "overlap": "drop"}, "overlap is 'drop': one of skip, allow, queue"),
        ({"cron": "0 3 * * *", "catch_up": 5}, "catch_up is 5: one of none, one, all"),
        ({"cron": "0 3 * * *", "key": "k"}, "schedule has no option 'key': there are priority,"),
        ({"cron": "0 3 * * *", "priority": 1000}, "priority 1000"),
        ({"cron": "0 3 * *"}, "five fields"),
        ({"every": 60, "jitter": 61}, "jitter is 61 s"),
        ({"cron": "0 3 * * *", "zone": "Mars"}, "zone 'Mars' is not known"),
    ],
)
async def test_bad_schedules_are_refused_in_one_line(app, given, said):
    """And nothing is there afterwards."""
    with pytest.raises(UsageError) as refused:
        await app.schedule("s", report(app), **given)
    assert said in str(refused.value)
    assert await app.schedules() == []


async def test_names_are_checked_and_unknown_ones_said(app):
    """A name is text that every store can keep."""
    for name in ("", "a\x1fb", "n" * 256, 5):
        with pytest.raises(UsageError, match="schedule "):
            await app.schedule(name, report(app) if not app.workflows else "shop.report.v1", every=60)
    for verb in (app.pause_schedule, app.resume_schedule, app.fire_schedule):
        with pytest.raises(UnknownSchedule, match="no schedule 'x'"):
            await verb("x")
    assert await app.unschedule("x") is False
