"""The verbs of schedules: accepted and refused arguments, and the effect of a codec."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast import App
from holdfast.engine.app.schedules import upcoming
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import UnknownSchedule, UsageError
from holdfast.lifecycle import Status
from holdfast.records import SECOND, RunFilter, instant
from tests.engine.kit import working
from tests.engine.schedules.schedule_helpers import HOUR, passes, report, runs


async def test_a_new_interval_restarts_a_schedule_and_new_params_do_not(app):
    """The last call counts."""
    made = report(app)
    first = await app.schedule("s", made, every=HOUR)
    await asyncio.sleep(600)
    same = await app.schedule("s", made, {"n": 2}, every=HOUR, overlap="allow", priority=3)
    assert (same.next_at, same.anchor_at, same.params) == (first.next_at, first.anchor_at, {"n": 2})
    assert (same.overlap, same.priority) == ("allow", 3)
    other = await app.schedule("s", made, {"n": 2}, every=2 * HOUR)
    assert other.next_at == first.next_at + timedelta(seconds=HOUR + 600)


async def test_a_schedule_that_cannot_fire_does_not_block_others(store, world, caplog):
    """Without the key, an encrypted schedule is skipped, and the log says so once a minute."""
    sealed = App(store, world=world, codec=hf.Encrypt({"a": bytes(32)}))
    app = App(store, world=world)
    await sealed.schedule("secret", "shop.report.v1", {"n": 1}, cron="0 * * * *")
    await app.schedule("readable", report(app), cron="0 * * * *")
    async with working(app):
        await passes(app, HOUR)
        await asyncio.sleep(50)
    assert [run.labels["schedule"] for run in await runs(app)] == ["readable"]
    warnings = [one.message for one in caplog.records if "cannot fire here" in one.message]
    assert len(warnings) == 1
    assert "schedule secret of tenant default" in warnings[0]


async def test_encrypted_params_are_encrypted_again_for_each_run(store, world):
    """The store never sees the values, and the worker decrypts them under the run's own id."""
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
async def test_params_are_encrypted_again_when_the_keys_have_changed(store, world):
    """A deployment repeats the call with a newer key, and then the old key can be removed."""
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


async def test_a_schedule_can_name_a_workflow_that_is_not_known_yet(app):
    """A workflow can be named by its type or by its bare name: the newest version at each of its times."""
    report(app)
    await app.publish()
    assert (await app.schedule("a", "shop.report", every=60)).type == "shop.report"
    assert (await app.schedule("b", "not.known.v1", every=60)).type == "not.known.v1"
    await asyncio.sleep(60)
    assert (await Keeper(app.store).tick()).fired == 2
    assert sorted(run.type for run in await app.list()) == ["not.known.v1", "shop.report.v1"]


async def test_upcoming_returns_the_next_times(app):
    """The answer is the same for a paused schedule."""
    one = await app.schedule("nightly", report(app), cron="0 3 * * *", zone="Europe/Berlin")
    now = instant(datetime(2026, 3, 28, tzinfo=UTC))
    times = upcoming(one, now, 3)
    assert [(when - now) / SECOND / HOUR for when in times] == [2, 25, 49]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cron": "0 3 * * *", "overlap": "drop"}, "overlap is 'drop': give one of skip, allow, queue"),
        ({"cron": "0 3 * * *", "catch_up": 5}, "catch_up is 5: give one of none, one, all"),
        ({"cron": "0 3 * * *", "key": "k"}, "schedule has no option 'key'; its options: priority,"),
        ({"cron": "0 3 * * *", "priority": 1000}, "priority 1000"),
        ({"cron": "0 3 * *"}, "five fields"),
        ({"every": 60, "jitter": 61}, "jitter is 61 s"),
        ({"cron": "0 3 * * *", "zone": "Mars"}, "zone 'Mars' is not known"),
    ],
)
async def test_bad_schedules_are_refused_in_one_line(app, given, message):
    """Nothing is stored afterwards."""
    with pytest.raises(UsageError) as refused:
        await app.schedule("s", report(app), **given)
    assert message in str(refused.value)
    assert await app.schedules() == []


async def test_schedule_names_are_checked_and_unknown_names_are_reported(app):
    """A name is text that every store can keep."""
    for name in ("", "a\x1fb", "n" * 256, 5):
        with pytest.raises(UsageError, match="schedule "):
            await app.schedule(name, report(app) if not app.workflows else "shop.report.v1", every=60)
    for verb in (app.pause_schedule, app.resume_schedule, app.fire_schedule):
        with pytest.raises(UnknownSchedule, match="no schedule 'x'"):
            await verb("x")
    assert await app.unschedule("x") is False
