"""Metrics for Prometheus: the text of a scrape, and a collector for a registry of your own.

The text is written here: it needs no library. `collector` needs the extra `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from holdfast.engine.app.client import StoreClient
from holdfast.records import ANY, Tenant

from . import store_wide
from .catalog import Kind
from .recorder import PROCESS, Distribution, Family, Recorder
from .text import CONTENT_TYPE, text

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


async def exposition(
    app: StoreClient,
    *,
    tenant: Tenant = ANY,
    tenants: bool = False,
    store: bool = True,
    process: bool = True,
) -> tuple[str, bytes]:
    """Return the content type and the text of one scrape. If the store does not answer, the text says
    `holdfast_store_up 0`.

    process: what this process has counted since `holdfast.telemetry.measure(app)` was called. store: what the
    store says of all processes; of one `tenant` only its runs. tenants: the metrics of runs have the label
    `tenant`, for at most 100 tenants that have work, a limit or an API key.
    """
    found: list[Family] = []
    if process:
        found += PROCESS.families()
    if store:
        found += await store_wide.families(app, tenant, tenants=tenants)
    return CONTENT_TYPE, text(found)


def collector(recorder: Recorder = PROCESS) -> Collector:
    """Return a collector of this process's metrics: `prometheus_client.REGISTRY.register(collector())`."""
    from prometheus_client.registry import Collector

    class Ours(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from map(_metric, recorder.families())

        def describe(self) -> Iterable[Metric]:
            return self.collect()

    return Ours()


def _metric(family: Family) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    metric = family.metric
    if metric.kind is Kind.HISTOGRAM:
        made = HistogramMetricFamily(metric.name, metric.help, labels=family.names)
        bounds = [*map(str, metric.buckets), "+Inf"]
        for labels, value in family.values.items():
            assert isinstance(value, Distribution)
            counts = [float(one) for one in accumulate(value.counts)]
            made.add_metric(labels, list(zip(bounds, counts, strict=True)), value.total)
        return made
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    simple = kind(metric.name, metric.help, labels=family.names)
    for labels, value in family.values.items():
        assert not isinstance(value, Distribution)
        simple.add_metric(labels, value)
    return simple
