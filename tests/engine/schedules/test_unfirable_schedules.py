"""Schedules that no keeper can fire, run ids that are taken, and catch-ups that are too long for one
round.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast import App
from holdfast.engine.schedules.firing import BATCH_MAX, ROUND_MAX, ScheduleFirer, timed_run
from holdfast.engine.worker.keeper import Keeper
from holdfast.errors import Unavailable
from holdfast.records import CatchUp, NewSchedule, Overlap, RunFilter, instant
from holdfast.testing.faulty import Faulty
from tests.engine.kit import working
from tests.engine.schedules.schedule_helpers import DAY, HOUR, passes, report, runs


class Vault:
    """A codec hook that has lost the keys of some tenants."""

    name, optional = "vault", False

    def __init__(self):
        self.lost = set()

    def seal(self, value, where):
        if where.tenant in self.lost:
            raise RuntimeError("no key for this tenant any more")
        return "vault", value[::-1]

    def open(self, how, value, where):
        return value[::-1]

    def digests(self, digest, where):
        return [digest]


async def in_no_zone(app, name="bad", overdue=HOUR):
    """A schedule whose zone is not known here."""
    await app.schedules()  # opens the store
    at = await app.store.now() - int(overdue * 1e6)
    new = NewSchedule(
        id=uuid4(), name=name, type="shop.report.v1", cron="0 3 * * *", zone="No/Where", next_at=at
    )
    return await app.store.schedule(new)


HOSTILE = [
    "59/59 */23 * feb MON#5", "0 0 30 2 *", "0 0 */16 * MON#2", "*", "", "\x1b[2J\n * * * *", "9" * 255,
    "* " * 127, "1/1/1 * * * *", "*/7 2 * MAR 0L",
]  # fmt: skip


@pytest.mark.spec("SCHED-1")
async def test_invalid_expressions_in_the_store_stop_no_other_schedule(app, caplog):
    """User SQL or an older version may have written them unchecked."""

    @app.workflow("shop.report.v1")
    async def told(ctx):
        return 1

    await app.schedules()  # opens the store
    at = await app.store.now() - int(HOUR * 1e6)
    for n, cron in enumerate(HOSTILE):
        for zone in ("UTC", "Europe/Berlin"):
            new = NewSchedule(
                id=uuid4(), name=f"a{n}{zone}", type="shop.report.v1", cron=cron, zone=zone, next_at=at
            )
            await app.store.schedule(new)
    await app.schedule("good", told, every=60)
    async with working(app):
        await asyncio.sleep(150)
    labels = [run.labels["schedule"] for run in await app.list(RunFilter(type="shop.report.v1"))]
    assert labels.count("good") == 2
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.spec("SCHED-1")
async def test_timers_fire_in_time_beside_a_schedule_that_cannot_be_fired(app, caplog):
    """The schedule is retried once a minute, with one warning each time."""

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(7.3)

    await in_no_zone(app)
    async with working(app, poll=1):
        await asyncio.sleep(3)
        for _ in range(3):
            run = await app.start(nap)
            await run.result(timeout=60)
            seen = await run.get()
            assert (seen.finished_at - seen.created_at).total_seconds() < 7.4
        await asyncio.sleep(100)
    told = [one.message for one in caplog.records if "cannot fire here" in one.message]
    assert len(told) == 3
    assert "zone 'No/Where' is not known" in told[0]


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
async def test_a_schedule_that_cannot_be_sealed_here_stops_no_other(store, world, caplog):
    """The number of later schedules does not matter."""
    vault = Vault()
    app = App(store, world=world, codec=[vault])
    made = report(app)
    await app.schedule("a", made, cron="0 * * * *", tenant="gone")
    for n in range(BATCH_MAX + 20):
        await app.schedule(f"s{n}", made, cron="0 * * * *")
    vault.lost.add("gone")
    app.world.leap(HOUR * 2.5)
    async with working(app):
        await passes(app, HOUR)
    assert {one.fired for one in await app.schedules()} == {2}
    assert (await app.schedules("gone"))[0].fired == 0
    told = [one.message for one in caplog.records if one.name == "holdfast.keeper"]
    assert sum("schedule a of tenant gone cannot fire here" in one for one in told) >= 1
    assert not any("cannot do chores" in one for one in told)
    # The schedule has not moved on, so no time was missed yet.
    assert not any("schedule a of gone: times" in one for one in told)


async def test_an_unreachable_store_is_no_fault_of_the_schedule(app, caplog):
    """The schedule is not skipped: it is fired as soon as the store is back."""
    await app.schedule("hourly", report(app), cron="0 * * * *")
    store = Faulty(app.store)

    async def away(call):
        raise Unavailable("away")

    store.plan("fire_schedule", 1, away)
    firer = ScheduleFirer(store)
    app.world.leap(HOUR)
    with pytest.raises(Unavailable):
        await firer.round()
    assert await firer.round() == 1


@pytest.mark.spec("SCHED-1")
async def test_a_schedule_that_is_mended_is_fired_at_once(app):
    """Only the old revision was skipped."""
    await in_no_zone(app, "s")
    async with working(app):
        await asyncio.sleep(2)
        await app.schedule("s", report(app), every=5)
        await asyncio.sleep(6)
    assert len(await runs(app)) == 1


@pytest.mark.spec("SCHED-1")
async def test_nobody_can_take_a_time_from_a_schedule_by_taking_its_id(app, caplog):
    """The id is computed from tenant, name and time and can be guessed: if it is taken, another id is
    used.
    """
    made = report(app)
    one = await app.schedule("nightly", made, cron="0 3 * * *", tenant="bank")
    foreseen = timed_run(one, instant(one.next_at)).id
    await app.start(made, id=foreseen, tenant="mallory")
    await app.pause(foreseen)
    async with working(app):
        await passes(app, 2 * DAY)
    found = await app.list(RunFilter(tenant="bank"))
    assert len(found) == 2
    assert foreseen not in {run.id for run in found}
    seen = (await app.schedules("bank"))[0]
    assert (seen.fired, seen.skipped) == (2, 0)
    assert any(f"its run id {foreseen} belongs to another run" in one.message for one in caplog.records)


class _Watched:
    """A store that counts the times that are fired at once, and in all."""

    def __init__(self, inner):
        self._inner, self.now_at_it, self.most, self.total = inner, 0, 0, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def fire_schedule(self, firing):
        self.now_at_it += len(firing.fires)
        self.total += len(firing.fires)
        self.most = max(self.most, self.now_at_it)
        await asyncio.sleep(0)
        try:
            return await self._inner.fire_schedule(firing)
        finally:
            self.now_at_it -= len(firing.fires)


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
async def test_a_long_catch_up_leaves_time_for_other_chores(app):
    """A round ends after ROUND_MAX times, in small commits, and the next one goes on from there."""
    await app.schedules()  # opens the store
    now = await app.store.now()
    for n in range(30):
        await app.store.schedule(
            NewSchedule(
                id=uuid4(), name=f"s{n}", type="shop.report.v1", every_us=10**6,
                anchor_at=now - int(HOUR) * 10**6,
                next_at=now - 3_599_000_000, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL,
            )
        )  # fmt: skip
    store = _Watched(app.store)
    firer = ScheduleFirer(store)
    assert await firer.round() == ROUND_MAX
    assert firer.unfinished
    assert (store.total, store.most) == (ROUND_MAX, BATCH_MAX)
    for _ in range(2):
        await firer.round()
    assert {one.fired for one in await app.schedules()} == {100}


async def test_one_tick_fires_all_that_is_due(app):
    """There is no other keeper, and more schedules are due than one round fires."""
    made = report(app)
    for n in range(ROUND_MAX // 10 + 7):
        await app.schedule(f"s{n}", made, every=60, catch_up="all", overlap="allow")
    app.world.leap(600)
    assert (await Keeper(app.store).tick()).fired == 10 * (ROUND_MAX // 10 + 7)


@pytest.mark.spec("SCHED-1", "OPS-1")
async def test_doctor_names_the_schedules_that_nobody_fires_and_why(app):
    """Schedules that no keeper can fire are not reported as a fault of keepers."""
    made = report(app)
    await in_no_zone(app)
    await app.schedule("hourly", made, cron="0 * * * *")
    app.world.leap(HOUR + 30)
    found = [one for one in (await app.doctor()).findings if "schedule" in one.what]
    assert [one.level for one in found] == ["error", "warning"]
    assert "schedule bad (tenant default) is overdue since 2025-12-31 23:00:00Z" in found[0].what
    assert "zone 'No/Where' is not known" in found[0].what
    assert found[1].what == "1 schedule overdue, by up to 30 s: hourly (tenant default)"
    async with working(app):
        await asyncio.sleep(1)
        said = [one.what for one in (await app.doctor()).findings]
    assert "no chore is overdue" in said
    assert sum("schedule" in what for what in said) == 1
