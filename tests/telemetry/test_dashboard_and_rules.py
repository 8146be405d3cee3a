"""The Grafana dashboard and the alert rules: Prometheus reads them, and what they ask for exists."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from holdfast.telemetry import dashboard, panels
from holdfast.telemetry.catalog import PROCESS_METRICS, STORE_METRICS, Kind
from holdfast.telemetry.rules import RULES, rules_yaml

METRICS = {one.name: one for one in (*PROCESS_METRICS, *STORE_METRICS)}
HISTOGRAM = re.compile("_(bucket|sum|count)$")
UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")


def rules():
    return [rule for group in yaml.safe_load(rules_yaml())["groups"] for rule in group["rules"]]


def expressions():
    return [*panels.expressions(), *(rule["expr"] for rule in rules())]


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_prometheus_parses_every_expression(prometheus):
    server = prometheus()
    assert len(expressions()) > 40
    for one in expressions():
        assert "$" not in one
        server.query(one)


def metric_of(name):
    """The metric of a series: a histogram has three kinds of them."""
    return METRICS.get(name) or METRICS[HISTOGRAM.sub("", name)]


@pytest.mark.spec("OPS-2")
def test_expressions_name_only_metrics_and_labels_that_we_export():
    for one in expressions():
        names = re.findall(r"holdfast_\w+", one)
        assert names, one
        allowed = {"store", "tenant"}
        for name in names:
            metric = metric_of(name)
            assert (metric.kind is Kind.HISTOGRAM) == (name != metric.name), name
            allowed |= {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
        grouped = re.findall(r"by \(([^)]*)\)", one)
        used = {label for labels in grouped for label in labels.split(", ")} | set(
            re.findall(r"(\w+)=~?\"", one)
        )
        assert used <= allowed, one


def test_rates_are_taken_of_counters_and_of_nothing_else():
    for one in expressions():
        rated = set(re.findall(r"(?:rate|increase)\((holdfast_\w+)", one))
        for name in re.findall(r"holdfast_\w+", one):
            assert (name in rated) == (metric_of(name).kind is not Kind.GAUGE), one


def test_every_metric_is_on_the_dashboard():
    shown = {
        metric_of(name).name for one in panels.expressions() for name in re.findall(r"holdfast_\w+", one)
    }
    assert shown == set(METRICS)


def test_legends_show_labels_that_the_expression_keeps():
    for panel in (panel for row in panels.ROWS.values() for panel in row):
        for query in panel.queries:
            kept = re.search(r"by \(([^)]*)\)", query.expression)[1].split(", ")
            assert set(re.findall(r"{{(\w+)}}", query.legend)) <= set(kept), query


@pytest.mark.slow
def test_promtool_finds_no_fault_in_the_rules(prometheus_programs):
    found = prometheus_programs.check("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert f"{len(rules())} rules found" in found


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_every_alert_is_raised_when_it_should_be_and_only_then(prometheus_programs, tmp_path):
    for file in (RULES, UNIT_TESTS):
        shutil.copy(file, tmp_path / file.name)
    prometheus_programs.check("test", "rules", tmp_path / UNIT_TESTS.name)


def test_every_alert_has_a_unit_test_a_severity_and_a_sentence_about_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    tested = set(re.findall(r"alertname: (\w+)", UNIT_TESTS.read_text("utf-8")))
    assert {rule["alert"] for rule in alerts} == tested
    for rule in alerts:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_dashboard_has_panels_that_do_not_overlap_and_ids_of_their_own():
    document = json.loads(dashboard.dashboard_json())
    taken = set()
    for panel in document["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < dashboard.WIDTH for x, _ in cells)
        taken |= cells
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    names = {variable["name"] for variable in document["templating"]["list"]}
    asked = set(re.findall(r"\$\{?(\w+)", json.dumps(document["panels"])))
    assert asked - {"__rate_interval", "__all"} <= names
