"""`doctor`: it names each fault and its remedy, and a damaged store does not make it raise."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status, Unavailable
from holdfast.engine.explain.doctor import LEVELS, Report
from holdfast.errors import NotADatabase
from holdfast.records import Finding, moment
from tests.engine.kit import outcome, process, until


async def found(app, level):
    """Return the findings of this level, without those about the store's own settings."""
    report = await app.doctor()
    own = {one.what for one in await app.store.checkup()}
    return [one for one in report.findings if one.level == level and one.what not in own]


async def found_texts(app, level):
    return [one.what for one in await found(app, level)]


def shop(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 1000)

    return order


@pytest.mark.spec("MOVE-7")
async def test_a_healthy_idle_store_has_no_faults(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async with app.worker(slots=5):
        await outcome(app, await app.start(order))
        assert await found(app, "warning") == await found(app, "error") == []
        texts = await found_texts(app, "ok")
    assert texts == [
        "no run is stuck",
        "1 run: 1 succeeded",
        "1 live worker with 5 slots, last heartbeat 0 s ago",
        "every due run has a live worker that can execute it",
        "no due run has waited longer than 60 s for a worker",
        "every event is delivered",
        "no lease has expired",
        "no chore is overdue",
        "every message is delivered",
    ]
    assert (await found_texts(app, "ok"))[2] == "no worker is live, and no run is open"


@pytest.mark.spec("LEASE-12")
async def test_due_runs_that_no_live_worker_can_take_are_named_by_type(app, world):
    order = shop(app)
    for type_ in ("shop.nobody.v1", "shop.nobody.v1", "shop.else.v1"):
        await app.start(type_)
    async with app.worker():
        await app.start(order)
        await asyncio.sleep(61)
        nobodys, lag = await found(app, "warning")
    assert nobodys.what == "no live worker can execute 3 due runs: shop.nobody.v1 (2), shop.else.v1 (1)"
    assert "live workers have: shop.order.v1" in nobodys.mend
    assert lag.what == "the oldest due run has waited 61 s for a worker"
    later = await found_texts(app, "warning")
    assert later[0] == "no worker is live, and 4 runs are open"


async def test_work_that_no_keeper_has_done_is_reported(app):
    order = shop(app)
    run = await app.start(order)
    one = await process(app, 1, lease=30, keeper=False)
    await until(app, run, Status.LEASED)
    one.kill()
    await asyncio.sleep(31)
    assert "no lease has expired" in await found_texts(app, "ok")
    await asyncio.sleep(60)
    warnings = {finding.what: finding for finding in await found(app, "warning")}
    gone = warnings["1 run with an expired lease: the worker is gone, and no keeper released them"]
    assert gone.runs == (run.id,)
    assert "holdfast tick" in gone.mend
    assert any("no keeper handles them" in what for what in warnings)
    await app.store.tick()
    assert "no lease has expired" in await found_texts(app, "ok")


async def test_undelivered_events_are_reported(app, monkeypatch):
    await app.store.open()
    monkeypatch.setattr(app.store, "stats", _with(app.store.stats, undelivered=3))
    assert "3 events recorded but not delivered yet" in await found_texts(app, "warning")


def _with(read, **changes):
    from msgspec.structs import replace

    async def changed():
        return replace(await read(), **changes)

    return changed


@pytest.mark.spec("MOVE-7")
async def test_stuck_runs_are_an_error_that_names_the_first_few(app, world, monkeypatch):
    ids = [world.uuid7() for _ in range(7)]

    async def stuck(limit):
        return ids[:limit]

    monkeypatch.setattr(app.store, "stuck", stuck)
    (error,) = await found(app, "error")
    assert error.what == "7 open runs stuck: nothing will ever wake them"
    assert error.runs == tuple(ids[:5])
    assert "holdfast rewind" in error.mend
    assert (await app.doctor()).level == "error"


@pytest.mark.parametrize("verb", ["checkup", "stuck", "stats", "list", "due"])
@pytest.mark.parametrize("error", [NotADatabase("page 7"), ValueError("page 7"), Unavailable("page 7")])
async def test_an_unreadable_part_is_a_finding_and_the_rest_is_still_checked(app, monkeypatch, verb, error):
    await app.store.open()

    async def broken(*args, **more):
        raise error

    monkeypatch.setattr(app.store, verb, broken)
    report = await app.doctor()
    errors = [one for one in report.findings if one.level == "error"]
    assert len(errors) == 1
    assert "page 7" in errors[0].what + errors[0].mend
    assert "cannot be read" in errors[0].what
    assert len(report.findings) > 4


async def test_doctor_raises_unavailable_for_an_unreachable_store(app, monkeypatch):
    async def away():
        raise Unavailable("it is away")

    await app.store.open()
    monkeypatch.setattr(app.store, "now", away)
    with pytest.raises(Unavailable, match="it is away"):
        await app.doctor()


def test_the_level_of_a_report_is_that_of_its_worst_finding():
    def report(*levels):
        return Report(moment(0), tuple(Finding(level=level, what="") for level in levels))

    assert [report(*levels).level for levels in ((), ("ok",), ("ok", "warning", "ok"), LEVELS)] == [
        "ok",
        "ok",
        "warning",
        "error",
    ]
