"""The list of metrics follows the conventions of Prometheus, and the text is read back by its parser."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.telemetry.catalog import PROCESS_METRICS, STORE_METRICS, Kind
from holdfast.telemetry.prometheus import collector
from holdfast.telemetry.recorder import Distribution, Family, Recorder
from holdfast.telemetry.text import text
from tests.engine.measures.scraped import parsed

ALL = (*PROCESS_METRICS, *STORE_METRICS)


@pytest.mark.spec("OPS-2")
@pytest.mark.parametrize("metric", ALL, ids=lambda one: one.name)
def test_names_follow_the_conventions(metric):
    assert re.fullmatch(r"holdfast_[a-z]+(_[a-z]+)*", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
    assert set(metric.labels) <= {"type", "outcome", "status", "verb", "error", "sink"}
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


def test_every_metric_is_there_once():
    assert len({metric.name for metric in ALL}) == len(ALL)
    assert [one.metric for one in Recorder().families()] == list(PROCESS_METRICS)


@pytest.mark.spec("OPS-2")
def test_labels_of_any_text_are_read_back():
    """Quotes, backslashes, line breaks and half surrogates neither break a line nor get lost."""
    recorder = Recorder()
    for sink in ('a"b', "a\\b", "a\nb", "a\\nb", "é✓", "x{y}=,#"):
        recorder.relayed(sink, sent=True)
    found = parsed(text(recorder.families()))
    for sink in ('a"b', "a\\b", "a\nb", "a\\nb", "é✓", "x{y}=,#"):
        assert found["holdfast_messages_sent_total", sink] == 1
    recorder.relayed("\ud800", sent=True)
    assert parsed(text(recorder.families()))["holdfast_messages_sent_total", "?"] == 1


@pytest.mark.spec("OPS-2")
def test_buckets_are_cumulative_and_end_at_the_count():
    recorder = Recorder()
    for seconds in (0.0004, 0.0005, 0.3, 31, 1e9):
        recorder.called("claim", seconds)
    found = parsed(text(recorder.families()))
    assert found["holdfast_store_call_seconds_bucket", "claim", "0.0005"] == 2
    assert found["holdfast_store_call_seconds_bucket", "claim", "0.5"] == 3
    assert found["holdfast_store_call_seconds_bucket", "claim", "30.0"] == 3
    assert found["holdfast_store_call_seconds_bucket", "claim", "+Inf"] == 5
    assert found["holdfast_store_call_seconds_count", "claim"] == 5
    assert found["holdfast_store_call_seconds_sum", "claim"] == pytest.approx(1e9 + 31.3009)


def test_a_registry_of_prometheus_client_shows_the_same():
    """`collector` is for programs that have a registry already."""
    recorder, registry = Recorder(), CollectorRegistry()
    registry.register(collector(recorder))
    recorder.tried("a", "succeeded", 0.2)
    recorder.executed("a", "waiting")
    theirs = {
        family.name: {(one.name, *sorted(one.labels.items())): one.value for one in family.samples}
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    ours = {
        family.name: {(one.name, *sorted(one.labels.items())): one.value for one in family.samples}
        for family in text_string_to_metric_families(text(recorder.families()).decode())
    }
    assert theirs == ours


def test_a_metric_without_values_has_its_description():
    some = Family(PROCESS_METRICS[1], {("a",): Distribution([1] * 18)})
    shown = text([Family(PROCESS_METRICS[0], {}), some])
    assert b"# TYPE holdfast_claim_latency_seconds histogram" in shown
