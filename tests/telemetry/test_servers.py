"""Metrics with a real Postgres and a real Redis: a played life, and a server that is gone."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

import holdfast as hf
from holdfast.telemetry import measure, store_wide
from holdfast.telemetry.prometheus import exposition
from holdfast.telemetry.recorder import Recorder
from holdfast.telemetry.serving import MetricsServer
from tests.engine.measures.scraped import parsed, values
from tests.telemetry.test_serving import get

TYPE = "shop.order.v1"


@pytest.fixture(params=["postgres", "redis"])
def url(request):
    """The URL of an empty store on a server."""
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return request.getfixturevalue("postgres_database").url


@pytest.fixture(params=["postgres", "redis"])
def nowhere(request, tmp_path):
    """The URL of a store that is not there."""
    if request.param == "redis":
        return f"unix://{tmp_path}/no-such.sock"
    database = request.getfixturevalue("postgres_database")
    return database.url.replace(database.name, "no_such_database")


async def life(app, url):
    """Execute three runs that sleep once; then scrape from here and from the server's own thread."""

    @app.workflow(TYPE)
    async def order(ctx):
        await ctx.step("a", lambda: 1)
        await ctx.sleep(0.01)

    async with app.worker():
        for run in [await app.start(order) for _ in range(3)]:
            await run.result(30)
        await app.start(order, delay=1000)
        here, beside = await exposition(app, process=False), await asyncio.to_thread(get, url)
    await app.close()
    return parsed(here[1]), parsed(beside[1])


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_promtool_finds_no_fault_in_names_and_texts(postgres_database, prometheus_programs):
    """Metrics of the process and of the store, after a life that has filled them."""
    app = hf.App(postgres_database.url, name="test")
    measure(app, Recorder())
    with MetricsServer(app, 0, store=True) as server:
        asyncio.run(life(app, server.url))
        with urllib.request.urlopen(server.url) as answer:
            text = answer.read().decode()
    assert "holdfast_runs_open" in text
    assert prometheus_programs.check("check", "metrics", given=text) == ""


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_a_life_on_a_server_is_counted_as_on_other_stores(url):
    app, recorder = hf.App(url, name="test"), Recorder()
    measure(app, recorder)
    with MetricsServer(app, 0, store=True) as server:
        for found in asyncio.run(life(app, server.url)):
            assert found["holdfast_store_up",] == 1
            assert found["holdfast_runs_started_total", TYPE] == 4
            assert found["holdfast_runs_finished_total", TYPE, "succeeded"] == 3
            assert found["holdfast_runs_open", TYPE, "pending"] == 1
            assert (found["holdfast_due_runs", TYPE], found["holdfast_workers",]) == (0, 1)
    found = values(recorder)
    assert found["executions_total", TYPE, "parked"] == found["executions_total", TYPE, "succeeded"] == 3
    assert found["claim_latency_seconds_count", TYPE] == 6
    assert found["resume_latency_seconds_count", TYPE] == 3
    assert found["resume_latency_seconds_sum", TYPE] > found["claim_latency_seconds_sum", TYPE] / 10
    assert found["store_call_seconds_count", "commit"] >= 3
    assert ("engine_errors_total",) in found
    assert found["engine_errors_total",] == 0


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_a_store_that_cannot_be_reached_is_down_within_the_deadline(nowhere):
    app = hf.App(nowhere, name="test")

    async def look():
        began = asyncio.get_running_loop().time()
        _, exposed = await exposition(app)
        return parsed(exposed), asyncio.get_running_loop().time() - began

    found, seconds = asyncio.run(look())
    assert found["holdfast_store_up",] == 0
    assert seconds < store_wide.DEADLINE_SECONDS + 2
