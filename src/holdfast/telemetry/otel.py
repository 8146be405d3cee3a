"""Metrics for OpenTelemetry: the happenings of this process go to the instruments of its meter provider.

Only the API is used, and only in a program that has loaded it and configured a provider; the SDK, its
readers and exporters are the program's own. Attributes have the names of the labels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakSet

from holdfast.engine.app.app import App
from holdfast.engine.measures import Measures, Slots

from . import catalog
from .catalog import Metric
from .recorder import Bounded, measure, shown_outcome

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, MeterProvider, Observation

METER = "holdfast"


def instrument_name(metric: Metric) -> str:
    """Return the name of an instrument, `holdfast.claim_latency`: an exporter to Prometheus adds the rest."""
    name = metric.name.removesuffix("_total").removesuffix("_seconds")
    return name.replace("_", ".", 1)


def _unit(metric: Metric) -> str:
    return "s" if metric.name.endswith("_seconds") else "1"


class OtelMeasures(Measures):
    """Passes happenings on to the instruments of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        self._workers: WeakSet[Slots] = WeakSet()
        self._type, self._sink, self._error = Bounded(), Bounded(), Bounded()
        self._claims = _histogram(meter, catalog.CLAIM_LATENCY)
        self._resumes = _histogram(meter, catalog.RESUME_LATENCY)
        self._steps = _histogram(meter, catalog.STEP_DURATION)
        self._executions = _counter(meter, catalog.EXECUTIONS)
        self._retries = _counter(meter, catalog.STEP_RETRIES)
        self._lost = _counter(meter, catalog.LEASES_LOST)
        self._engine_errors = _counter(meter, catalog.ENGINE_ERRORS)
        self._calls = _histogram(meter, catalog.STORE_CALL)
        self._refusals = _counter(meter, catalog.STORE_ERRORS)
        self._sent = _counter(meter, catalog.MESSAGES_SENT)
        self._failed = _counter(meter, catalog.MESSAGES_FAILED)
        self._fired = _counter(meter, catalog.SCHEDULES_FIRED)
        self._late = _histogram(meter, catalog.SCHEDULE_LATENESS)
        self._gauge(meter, catalog.SLOTS, lambda one: one.slots)
        self._gauge(meter, catalog.SLOTS_BUSY, lambda one: one.busy)
        self._gauge(meter, catalog.STRAGGLERS, lambda one: one.stragglers)

    def worker_started(self, worker: Slots) -> None:
        with self._lock:
            self._workers.add(worker)

    def worker_stopped(self, worker: Slots) -> None:
        with self._lock:
            self._workers.discard(worker)

    def claimed(self, type_: str, late_seconds: float) -> None:
        self._claims.record(max(late_seconds, 0.0), {"type": self._type(type_)})

    def resumed(self, type_: str, late_seconds: float) -> None:
        self._resumes.record(max(late_seconds, 0.0), {"type": self._type(type_)})

    def tried(self, type_: str, outcome: str, seconds: float) -> None:
        self._steps.record(max(seconds, 0.0), {"type": self._type(type_), "outcome": outcome})
        if outcome == "retried":
            self._retries.add(1, {"type": self._type(type_)})

    def executed(self, type_: str, outcome: str) -> None:
        outcome = shown_outcome(outcome)
        self._executions.add(1, {"type": self._type(type_), "outcome": outcome})
        if outcome == "lost":
            self._lost.add(1, {"type": self._type(type_)})

    def engine_failed(self) -> None:
        self._engine_errors.add(1)

    def called(self, verb: str, seconds: float) -> None:
        self._calls.record(max(seconds, 0.0), {"verb": verb})

    def refused(self, verb: str, error: str) -> None:
        self._refusals.add(1, {"verb": verb, "error": self._error(error)})

    def relayed(self, sink: str, *, sent: bool) -> None:
        (self._sent if sent else self._failed).add(1, {"sink": self._sink(sink)})

    def fired(self, late_seconds: float) -> None:
        self._fired.add(1)
        self._late.record(max(late_seconds, 0.0))

    def _gauge(self, meter: Meter, metric: Metric, of: Callable[[Slots], int]) -> None:
        from opentelemetry.metrics import Observation

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                workers = list(self._workers)
            return [Observation(sum(map(of, workers)))]

        meter.create_observable_gauge(instrument_name(metric), [observe], _unit(metric), metric.help)


def _counter(meter: Meter, metric: Metric) -> Counter:
    return meter.create_counter(instrument_name(metric), _unit(metric), metric.help)


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    return meter.create_histogram(
        instrument_name(metric),
        _unit(metric),
        metric.help,
        explicit_bucket_boundaries_advisory=list(metric.buckets),
    )


_measures: dict[int, tuple[MeterProvider, OtelMeasures]] = {}


def otel_measures(provider: MeterProvider) -> OtelMeasures:
    """Return the measures of a provider: one for each, so that no happening is counted twice."""
    found = _measures.get(id(provider))
    if found is None:
        found = _measures[id(provider)] = provider, OtelMeasures(provider.get_meter(METER))
    return found[1]


def measure_if_configured(app: App) -> None:
    """Pass the happenings of this app's workers on, if the program has configured a meter provider."""
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    # Before anything is configured there is a stand-in, which keeps each instrument for a later provider.
    if type(provider).__module__.startswith("opentelemetry.metrics"):
        return
    measure(app, otel_measures(provider))
