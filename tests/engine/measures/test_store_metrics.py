"""Metrics of the whole store: after played lives, with a store that hangs or is gone, for tenants."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.telemetry import store_wide
from holdfast.telemetry.catalog import LABELS_MAX, STORE_METRICS
from holdfast.telemetry.prometheus import exposition
from holdfast.testing.faulty import Faulty, delay, fail_before
from tests.engine.kit import process, until
from tests.engine.measures.scraped import parsed
from tests.engine.schedules.schedule_helpers import report

TYPE = "shop.order.v1"


async def scraped(app, **options):
    """Return the metrics of the store, without the prefix of their names."""
    _, exposed = await exposition(app, process=False, **options)
    found = parsed(exposed).items()
    return {(name.removeprefix("holdfast_"), *rest): value for (name, *rest), value in found}


def order(app):
    @app.workflow(TYPE)
    async def made(ctx, what: str):
        if what == "fail":
            raise hf.Fatal("no")
        if what == "wait":
            await ctx.await_event("parcel")
        if what == "send":
            ctx.send("nowhere", 1)
        if what == "long":
            await ctx.step("long", asyncio.sleep, 500)

    return made


@pytest.mark.spec("OPS-2")
async def test_runs_are_counted_by_type_and_status_since_the_beginning(app):
    made = order(app)
    async with app.worker():
        for what in ("fail", "ok", "ok", "wait", "long"):
            await app.start(made, what)
        stopped = await app.start(made, "wait")
        await asyncio.sleep(5)
        await app.cancel(stopped.id)
        await app.start(made, "ok", delay=1000)
        await asyncio.sleep(5)
        found = await scraped(app)
        assert found["store_up",] == 1
        assert found["runs_started_total", TYPE] == 7
        ended = [found["runs_finished_total", TYPE, one] for one in ("succeeded", "failed", "cancelled")]
        assert ended == [2, 1, 1]
        left = [found["runs_open", TYPE, one] for one in ("pending", "leased", "waiting", "paused")]
        assert left == [1, 1, 1, 0]
        assert found["runs_suspended", TYPE] == 1
        assert (found["workers",], found["events_undelivered",]) == (1, 0)
        assert (found["due_runs", TYPE], found["queue_age_seconds", TYPE]) == (0, 0)


@pytest.mark.spec("OPS-2", "OPS-7")
async def test_due_runs_that_nobody_takes_have_an_age_and_are_unclaimable(app):
    made = order(app)
    await app.start(made, "ok")
    await asyncio.sleep(25)
    await app.start(made, "ok")
    await app.start(made, "ok", tenant="acme")
    await asyncio.sleep(5)
    found = await scraped(app)
    assert found["due_runs", TYPE] == 3
    assert found["queue_age_seconds", TYPE] == pytest.approx(30, abs=1)
    assert found["unclaimable_runs", TYPE] == 3
    assert found["workers",] == 0


@pytest.mark.spec("OPS-2")
async def test_retries_and_expired_leases_are_counted(app):
    @app.workflow(TYPE, retry=hf.Backoff.fixed(5, attempts=2))
    async def made(ctx):
        raise ValueError("no")

    @app.workflow("shop.hang.v1")
    async def hangs(ctx):
        await ctx.step("long", asyncio.sleep, 500)

    await app.start(hangs)
    killed = await process(app, 1, lease=5.0)
    await asyncio.sleep(1)
    killed.kill()
    async with app.worker(patterns=[TYPE]):
        run = await app.start(made)
        await until(app, run)
        await asyncio.sleep(10)
        found = await scraped(app)
    assert found["runs_retried_total", TYPE] == 1
    assert found["leases_expired_total", "shop.hang.v1"] == 1


@pytest.mark.spec("OPS-2")
async def test_the_outbox_is_shown_by_sink(app):
    made = order(app)
    async with app.worker():
        await (await app.start(made, "send")).result(100)
    await asyncio.sleep(60)
    found = await scraped(app)
    assert (found["outbox_pending", "nowhere"], found["outbox_dead", "nowhere"]) == (1, 0)
    assert found["outbox_lag_seconds", "nowhere"] == pytest.approx(60, abs=1)


@pytest.mark.spec("OPS-2")
async def test_limits_count_when_they_are_used_up_or_paused(app):
    """A limit is for a type, a tenant or a key; a limit for a prefix counts for each of its names."""
    made = order(app)
    await app.limit(type="shop.%", concurrency=3)
    await app.limit(tenant="acme", concurrency=1)
    await app.limit(key="mail:%", concurrency=2)
    await app.limit(key="other", concurrency=1)
    await app.pause_key("api", 1000)
    assert (await scraped(app))["limits_at_cap",] == 1
    async with app.worker():
        for options in ({"tenant": "acme"}, {"limit_key": "mail:a"}):
            await app.start(made, "long", **options)
        await asyncio.sleep(5)
        assert (await scraped(app))["limits_at_cap",] == 2
        await app.start(made, "long", limit_key="mail:a")
        await asyncio.sleep(5)
        assert (await scraped(app))["limits_at_cap",] == 4


@pytest.mark.spec("OPS-2")
async def test_a_schedule_that_nobody_fires_is_late(app):
    made = report(app)
    await app.publish()
    await app.schedule("hourly", made, every=3600)
    assert (await scraped(app))["schedules_late_seconds",] == 0
    app.world.leap(3600 + 90)
    await asyncio.sleep(2)
    assert (await scraped(app))["schedules_late_seconds",] == pytest.approx(92, abs=1)


@pytest.mark.spec("OPS-2", "TEN-1")
async def test_tenants_are_a_label_when_asked_for_and_one_tenant_sees_its_runs_only(app):
    made = order(app)
    for tenant, number in (("acme", 2), ("blue", 1)):
        for _ in range(number):
            await app.start(made, "ok", tenant=tenant)
    found = await scraped(app, tenants=True)
    assert found["runs_started_total", TYPE, "acme"] == 2
    assert found["runs_open", TYPE, "pending", "blue"] == 1
    assert found["due_runs", TYPE, "acme"] == 2
    assert ("workers",) in found
    own = await scraped(app, tenant="blue")
    assert own["runs_started_total", TYPE] == own["due_runs", TYPE] == 1
    of_runs = {one.name.removeprefix("holdfast_") for one in STORE_METRICS if one.tenant}
    assert {name for name, *_ in own} <= of_runs | {"store_up"}


@pytest.mark.spec("OPS-2")
async def test_a_store_that_is_gone_is_down_and_the_process_is_shown_all_the_same(app):
    app.store = faulty = Faulty(app.store)
    for verb in ("open", "scale", "counts"):
        faulty.always(verb, fail_before)
    _, exposed = await exposition(app)
    found = parsed(exposed)
    assert found["holdfast_store_up",] == 0
    assert found["holdfast_engine_errors_total",] >= 0
    assert not any(name.startswith("holdfast_runs") for name, *_ in found)
    for verb in ("open", "scale", "counts"):
        faulty.always(verb, None)
    await asyncio.sleep(2)
    assert (await scraped(app))["store_up",] == 1


@pytest.mark.spec("OPS-2")
async def test_a_store_that_hangs_delays_a_scrape_for_the_deadline_and_reads_do_not_pile_up(app):
    app.store = faulty = Faulty(app.store)
    faulty.always("scale", delay(60))
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(scraped(app) for _ in range(20)))
    assert loop.time() - began == pytest.approx(store_wide.DEADLINE_SECONDS, abs=0.1)
    assert {one["store_up",] for one in answers} == {0}
    assert faulty.calls["scale"] == 1


@pytest.mark.spec("OPS-2")
async def test_an_answer_of_the_store_serves_all_scrapes_of_a_second(app):
    app.store = faulty = Faulty(app.store)
    for _ in range(3):
        await scraped(app)
    assert faulty.calls["counts"] == 1
    await asyncio.sleep(store_wide.FRESH_SECONDS)
    await scraped(app)
    assert faulty.calls["counts"] == 2


@pytest.mark.spec("OPS-2")
async def test_types_of_the_store_are_bounded(app, monkeypatch):
    """The smallest of them are counted under `other`, and nothing is lost."""
    monkeypatch.setattr(store_wide, "LABELS_MAX", 3)
    for number in range(6):

        @app.workflow(f"shop.order{number}.v1")
        async def made(ctx):
            return 1

        for _ in range(6 - number):
            await app.start(made)
    found = await scraped(app)
    started = {rest[0]: value for (name, *rest), value in found.items() if name == "runs_started_total"}
    assert started == {"shop.order0.v1": 6, "shop.order1.v1": 5, "shop.order2.v1": 4, "other": 6}
    assert LABELS_MAX == 500
