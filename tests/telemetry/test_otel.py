"""Metrics through OpenTelemetry: with a reader in memory; nothing when no provider is configured."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import holdfast as hf
from holdfast.engine.measures import Several
from holdfast.stores.memory import MemoryStore
from holdfast.telemetry import measure, otel
from holdfast.telemetry.catalog import PROCESS_METRICS, Kind
from holdfast.telemetry.recorder import Recorder
from tests.engine.measures.scraped import values


@pytest.fixture
def reader(monkeypatch):
    """A provider with a reader, configured as a program does it, for this test only."""
    made = InMemoryMetricReader()
    provider = MeterProvider([made], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", lambda: provider)
    yield made
    otel._measures.clear()
    provider.shutdown()


def points(reader):
    """Return the points of each instrument, by name and attributes."""
    data = reader.get_metrics_data()
    return {
        (metric.name, *point.attributes.values()): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def measured_app():
    app = hf.App(MemoryStore(), name="test")

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(0.01, attempts=2))
    async def order(ctx):
        async def work():
            if ctx.attempt and not tried:
                tried.append(1)
                raise ValueError("no")

        await ctx.step("work", work)

    tried = []
    return app, order


async def life(app, order):
    async with app.worker(slots=7):
        await (await app.start(order)).result(10)


@pytest.mark.spec("OPS-2")
def test_a_configured_provider_gets_each_happening_once(reader):
    """Also when Prometheus counts beside it, and with several workers made from one app."""
    app, order = measured_app()
    recorder = Recorder()
    measure(app, recorder)
    app.worker()
    asyncio.run(life(app, order))
    found, type_ = points(reader), "shop.order.v1"
    assert found["holdfast.executions", type_, "succeeded"].value == 1
    assert found["holdfast.step_retries", type_].value == 1
    steps = found["holdfast.step_duration", type_, "retried"]
    assert (steps.count, list(steps.explicit_bounds)) == (1, list(PROCESS_METRICS[2].buckets))
    assert found["holdfast.claim_latency", type_].count == 1
    assert found["holdfast.store_call", "commit"].count >= 2
    assert found["holdfast.worker_slots",].value == 0
    assert values(recorder)["executions_total", type_, "succeeded"] == 1
    assert isinstance(app.measures, Several)
    assert len(app.measures.each) == 2


def test_gauges_show_the_workers_that_work(reader):
    app, _ = measured_app()

    async def look():
        async with app.worker(slots=7):
            return points(reader)["holdfast.worker_slots",].value

    assert asyncio.run(look()) == 7


def test_every_metric_of_a_process_has_an_instrument(reader):
    app, order = measured_app()
    asyncio.run(life(app, order))
    app.measures.relayed("mail", sent=True)
    app.measures.relayed("mail", sent=False)
    app.measures.fired(1.0)
    app.measures.executed("a", "lost")
    app.measures.resumed("a", 1.0)
    app.measures.refused("claim", "Unavailable")
    app.measures.engine_failed()
    assert {name for name, *_ in points(reader)} == {otel.instrument_name(one) for one in PROCESS_METRICS}
    assert {one.kind for one in PROCESS_METRICS} == set(Kind)


def test_without_a_provider_nothing_is_measured(monkeypatch):
    """There is a stand-in before anything is configured, and one that does nothing."""
    app, _ = measured_app()
    app.worker()
    assert app.measures is None
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", NoOpMeterProvider)
    app.worker()
    assert app.measures is None


@pytest.mark.slow
def test_a_program_that_does_not_use_metrics_imports_nothing_for_them():
    """Neither the library of the one nor of the other, and nothing of ours."""
    code = (
        "import sys, holdfast as hf; from holdfast.cli.main import main\n"
        "app = hf.App('memory://'); app.worker()\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('prometheus_client', 'opentelemetry')"
        " or m.startswith('holdfast.telemetry')]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
