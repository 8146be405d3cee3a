"""The check-up: it names what is wrong and how to mend it, and a damaged store does not throw it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Status, Unavailable
from holdfast.engine.doctor import LEVELS, Report
from holdfast.errors import NotADatabase
from holdfast.records import Finding, moment
from tests.engine.kit import outcome, process, until


async def found(app, level):
    """What of this level was found, but for the store's own settings."""
    report = await app.doctor()
    own = {one.what for one in await app.store.checkup()}
    return [one for one in report.findings if one.level == level and one.what not in own]


async def sayings(app, level):
    return [one.what for one in await found(app, level)]


def shop(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("long", asyncio.sleep, 1000)

    return order


@pytest.mark.spec("MOVE-7")
async def test_a_store_at_rest_is_well(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return 1

    async with app.worker(slots=5):
        await outcome(app, await app.start(order))
        assert await found(app, "warning") == await found(app, "error") == []
        said = await sayings(app, "ok")
    assert said == [
        "every open run has a way on",
        "1 run: 1 succeeded",
        "1 live worker with 5 slots, heard of 0 s ago",
        "every due run has a live worker that can take it",
        "no due run has waited longer than 60 s for a worker",
        "every event is delivered",
        "no lease is past its end",
        "no chore is overdue",
        "every message is delivered",
    ]
    assert (await sayings(app, "ok"))[2] == "no worker is live, and no run is open"


@pytest.mark.spec("LEASE-12")
async def test_due_runs_that_no_live_worker_can_take_are_named_by_type(app, world):
    order = shop(app)
    for type_ in ("shop.nobody.v1", "shop.nobody.v1", "shop.else.v1"):
        await app.start(type_)
    async with app.worker():
        await app.start(order)
        await asyncio.sleep(61)
        nobodys, lag = await found(app, "warning")
    assert nobodys.what == "no live worker can take 3 due runs: shop.nobody.v1 (2), shop.else.v1 (1)"
    assert "live workers have: shop.order.v1" in nobodys.mend
    assert lag.what == "the oldest due run has waited 61 s for a worker"
    later = await sayings(app, "warning")
    assert later[0] == "no worker is live, and 4 runs are open"


async def test_what_no_keeper_has_done_is_told(app):
    order = shop(app)
    run = await app.start(order)
    one = await process(app, 1, lease=30, keeper=False)
    await until(app, run, Status.LEASED)
    one.kill()
    await asyncio.sleep(31)
    assert "no lease is past its end" in await sayings(app, "ok")
    await asyncio.sleep(60)
    warnings = {finding.what: finding for finding in await found(app, "warning")}
    gone = warnings["1 run whose worker is gone, and no keeper has taken them back"]
    assert gone.runs == (run.id,)
    assert "holdfast tick" in gone.mend
    assert any("no keeper does them" in what for what in warnings)
    await app.store.tick()
    assert "no lease is past its end" in await sayings(app, "ok")


async def test_an_event_that_is_not_delivered_is_told(app, monkeypatch):
    await app.store.open()
    monkeypatch.setattr(app.store, "stats", _with(app.store.stats, undelivered=3))
    assert "3 events recorded and not delivered yet" in await sayings(app, "warning")


def _with(read, **changes):
    from msgspec.structs import replace

    async def changed():
        return replace(await read(), **changes)

    return changed


@pytest.mark.spec("MOVE-7")
async def test_runs_without_a_way_on_are_an_error_that_names_the_first_few(app, world, monkeypatch):
    ids = [world.uuid7() for _ in range(7)]

    async def stuck(limit):
        return ids[:limit]

    monkeypatch.setattr(app.store, "stuck", stuck)
    (error,) = await found(app, "error")
    assert error.what == "7 open runs without a way on: nothing will ever wake them"
    assert error.runs == tuple(ids[:5])
    assert "holdfast rewind" in error.mend
    assert (await app.doctor()).level == "error"


@pytest.mark.parametrize("verb", ["checkup", "stuck", "stats", "list", "due"])
@pytest.mark.parametrize("error", [NotADatabase("page 7"), ValueError("page 7"), Unavailable("page 7")])
async def test_what_cannot_be_read_is_a_finding_and_the_rest_is_looked_at(app, monkeypatch, verb, error):
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


async def test_a_store_that_cannot_be_reached_at_all_is_said_as_such(app, monkeypatch):
    async def away():
        raise Unavailable("it is away")

    await app.store.open()
    monkeypatch.setattr(app.store, "now", away)
    with pytest.raises(Unavailable, match="it is away"):
        await app.doctor()


def test_a_report_is_as_bad_as_its_worst_finding():
    def report(*levels):
        return Report(moment(0), tuple(Finding(level=level, what="") for level in levels))

    assert [report(*levels).level for levels in ((), ("ok",), ("ok", "warning", "ok"), LEVELS)] == [
        "ok",
        "ok",
        "warning",
        "error",
    ]
