"""The page of metrics: the tables of `holdfast.telemetry.catalog`."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.telemetry.catalog import LABELS_MAX, PROCESS_METRICS, STORE_METRICS, TENANTS_MAX, Metric
from holdfast.telemetry.otel import instrument_name
from tools.docs import text


def _labels(metric: Metric) -> str:
    named = [f"`{label}`" for label in metric.labels]
    return ", ".join([*named, "(`tenant`)"] if metric.tenant else named)


def _rows(metrics: Iterable[Metric], *, otel: bool) -> Iterable[list[str]]:
    for one in metrics:
        row = [f"`{one.name}`", str(one.kind), _labels(one), one.help]
        yield [*row, f"`{instrument_name(one)}`"] if otel else row


def _buckets() -> str:
    return "\n".join(
        f"- `{one.name}`: {', '.join(f'{bound:g}' for bound in one.buckets)}"
        for one in PROCESS_METRICS
        if one.buckets
    )


def page() -> str:
    head = ["metric", "kind", "labels", "meaning"]
    return text.page(
        "Metrics",
        "`holdfast.telemetry.catalog`",
        f"`type` is the type of a workflow, `verb` a verb of the store, `sink` a sink or webhook. No label "
        f"holds an id or a key. A label has at most {LABELS_MAX} values in one process, or in one answer of "
        f"the store; all further ones are `other`.",
        "## Of a process",
        "Each worker process counts these since its start. Add them up over all processes. The last column "
        "is the instrument of OpenTelemetry.",
        text.table([*head, "OpenTelemetry"], _rows(PROCESS_METRICS, otel=True)),
        "Upper bounds of the buckets, in seconds:",
        _buckets(),
        "## Of the store",
        "These are read from the store when they are asked for, and are the same for every process: one "
        "process of a deployment should report them. Counters count since the store began to count, and "
        f"go on across restarts. (`tenant`) is a label when tenants are asked for: at most {TENANTS_MAX} "
        "that have work, a limit or an API key.",
        text.table(head, _rows(STORE_METRICS, otel=False)),
    )
