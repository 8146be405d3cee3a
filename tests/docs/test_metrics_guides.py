"""The guides of metrics and scaling: their commands, configurations, expressions and manifests are real."""

from __future__ import annotations

import re
import shutil
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
import yaml

from holdfast.contract import DUE_COUNTED
from holdfast.http.operation import all_operations
from holdfast.shown.counts import ScaleData
from holdfast.telemetry.catalog import LABELS_MAX, PROCESS_METRICS, STORE_METRICS, TENANTS_MAX
from holdfast.telemetry.rules import RULES, rules_yaml
from servers.plugin import need
from tests.docs import pages, shell

GUIDE = pages.ROOT / "docs" / "guide"
METRICS, SCALING, DEPLOYMENT = GUIDE / "metrics.md", GUIDE / "scaling.md", GUIDE / "deployment.md"
NAMES = {one.name for one in (*PROCESS_METRICS, *STORE_METRICS)}
RULE_LIST = [rule for group in yaml.safe_load(rules_yaml())["groups"] for rule in group["rules"]]


def manifests(page):
    """All YAML documents of a page."""
    found = [block.text for block in pages.blocks(page) if block.language == "yaml"]
    return [one for text in found for one in yaml.safe_load_all(text)]


def manifest(page, kind):
    return [one for one in manifests(page) if isinstance(one, dict) and one.get("kind") == kind]


@pytest.mark.slow
@pytest.mark.spec("OPS-2", "OPS-7")
@pytest.mark.parametrize("page", [METRICS, SCALING], ids=pages.name)
def test_the_commands_print_what_the_page_says(page, tmp_path):
    need("curl")
    (command,) = [line for line in pages.commands(page) if line.startswith("holdfast serve")]
    with shell.serving(tmp_path, *command.split()[2:]) as port:
        assert shell.wrong_outputs(page, tmp_path, port) == []


@pytest.mark.slow
def test_prometheus_accepts_the_scrape_configuration(prometheus_programs, tmp_path):
    (config,) = [
        one.text for one in pages.blocks(METRICS) if one.language == "yaml" and "scrape_configs" in one.text
    ]
    (tmp_path / "holdfast.key").write_text("hf_secret")
    shutil.copy(RULES, tmp_path / "holdfast.rules.yaml")
    (tmp_path / "prometheus.yml").write_text(config.replace("/etc/prometheus/", f"{tmp_path}/"))
    said = prometheus_programs.check("check", "config", tmp_path / "prometheus.yml")
    assert "SUCCESS" in said
    assert "1 rule files found" in said


def test_the_table_of_alerts_is_that_of_the_rules():
    rows = re.findall(r"^\| `(Holdfast\w+)` \| (\w+) \|", METRICS.read_text("utf-8"), re.MULTILINE)
    assert rows == [(one["alert"], one["labels"]["severity"]) for one in RULE_LIST if "alert" in one]


def expressions():
    table = re.findall(r"^\| .*\? \| `(.+)` \|$", METRICS.read_text("utf-8"), re.MULTILINE)
    assert len(table) >= 5
    triggers = [one["spec"]["triggers"][0] for one in manifest(DEPLOYMENT, "ScaledObject")]
    return [*table, *(one["metadata"]["query"] for one in triggers if one["type"] == "prometheus")]


@pytest.mark.slow
def test_prometheus_accepts_the_expressions_of_the_pages(prometheus):
    server = prometheus()
    for one in expressions():
        server.query(one)


def test_expressions_name_metrics_that_exist():
    recorded = {one["record"] for one in RULE_LIST if "record" in one}
    for one in expressions():
        named = re.findall(r"holdfast[_:]\w+", one)
        assert named
        assert {re.sub("_bucket$", "", name) for name in named} <= NAMES | recorded


@pytest.mark.spec("OPS-7")
def test_keda_asks_for_a_number_that_the_api_has_and_divides_it_by_the_slots():
    deployment, *_ = manifest(DEPLOYMENT, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    slots = container["command"][container["command"].index("--slots") + 1]
    objects = manifest(DEPLOYMENT, "ScaledObject")
    assert [one["spec"]["triggers"][0]["type"] for one in objects] == ["metrics-api", "prometheus"]
    for one in objects:
        assert one["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        assert one["spec"]["minReplicaCount"] >= 1
        (trigger,) = one["spec"]["triggers"]
        assert trigger["metadata"].get("targetValue", trigger["metadata"].get("threshold")) == slots
    asked = objects[0]["spec"]["triggers"][0]
    (auth,) = manifest(DEPLOYMENT, "TriggerAuthentication")
    assert asked["authenticationRef"]["name"] == auth["metadata"]["name"]
    assert auth["spec"]["secretTargetRef"][0]["parameter"] == "token"
    url = urlsplit(asked["metadata"]["url"])
    operation = all_operations()["scale"]
    assert url.path == operation.path
    query = {name: (value,) for name, value in parse_qsl(url.query)}
    assert msgspec.convert(query, operation.takes["query"]).type == ("shop.%",)
    fields = {one.name: one.type for one in msgspec.structs.fields(ScaleData)}
    assert fields[asked["metadata"]["valueLocation"]] is int


def test_the_autoscaler_of_kubernetes_reads_the_recorded_load():
    (adapter,) = [one["externalRules"] for one in manifests(SCALING) if "externalRules" in one]
    (scaler,) = manifest(SCALING, "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == adapter[0]["name"]["as"]
    assert adapter[0]["seriesQuery"] == '{__name__="holdfast:load"}'
    assert "holdfast:load" in {one.get("record") for one in RULE_LIST}


def test_every_named_operation_exists_and_the_numbers_are_those_of_the_program():
    known = {f"{one.method} {one.path}" for one in all_operations().values()}
    for page in (METRICS, SCALING):
        text = page.read_text("utf-8")
        assert set(re.findall(r"`(GET /[a-z/]*)", text)) <= known
    text = METRICS.read_text("utf-8")
    assert f"at most {LABELS_MAX} types" in text
    assert f"at most {TENANTS_MAX} of them" in text
    assert f"{DUE_COUNTED:,} are counted for each type and tenant" in SCALING.read_text("utf-8")
    fields = re.findall(r"^\| `(\w+)` \|", SCALING.read_text("utf-8"), re.MULTILINE)
    assert set(fields) <= set(ScaleData.__struct_fields__)
