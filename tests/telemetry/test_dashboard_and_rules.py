"""The Grafana dashboard and the alert rules: Prometheus itself reads them, and they ask only for metrics that we have."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from holdfast.telemetry import dashboard
from holdfast.telemetry.rules import RULES, rules_yaml

UNIT_TESTS = Path(__file__).with_name("rules_test.yaml")


def rules():
    return [rule for group in yaml.safe_load(rules_yaml())["groups"] for rule in group["rules"]]


def expressions():
    return [*dashboard.expressions(), *(rule["expr"] for rule in rules())]


@pytest.mark.slow
@pytest.mark.spec("OPS-2")
def test_prometheus_parses_every_expression(prometheus):
    server = prometheus()
    assert len(expressions()) > 40
    for one in expressions():
        assert "$" not in one
        server.query(one)


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
    tested = set(re.findall(r"alertname: (\w+)", UNIT_TESTS.read_text("utf-8")))
    assert {rule["alert"] for rule in rules()} == tested
    for rule in rules():
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
