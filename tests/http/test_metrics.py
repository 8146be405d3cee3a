"""`GET /metrics`, `/counts`, `/rates` and `/scale`: a key sees its own tenant, an operator all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.records import Scope
from holdfast.telemetry.catalog import PROCESS_METRICS, STORE_METRICS
from tests.http.kit import MINE, OTHERS

ORDER = "shop.order.v1"


@pytest.fixture
def filled(kit):
    """Two due runs of one tenant, and one of the other."""
    for tenant in (MINE, MINE, OTHERS):
        kit.run(kit.app.of(tenant).start, ORDER, {"id": 1})
    return kit


def samples(text):
    """The values of an exposition, by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def families(text):
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


@pytest.mark.spec("HTTP-1", "OPS-2")
def test_an_operator_scrapes_the_whole_store_and_this_process(filled):
    answer = filled.ask("GET", "/metrics", filled.key(Scope.OPERATOR))
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert families(answer.text) == {one.name for one in (*STORE_METRICS, *PROCESS_METRICS)}
    found = samples(answer.text)
    assert found["holdfast_store_up"] == 1
    assert found[f'holdfast_runs_started_total{{type="{ORDER}"}}'] == 3
    assert found[f'holdfast_due_runs{{type="{ORDER}"}}'] == 3
    assert "tenant=" not in answer.text


@pytest.mark.spec("TEN-1", "TEN-2", "OPS-2")
def test_any_other_key_scrapes_the_runs_of_its_tenant_alone(filled):
    answer = filled.ask("GET", "/metrics", filled.key(Scope.METRICS))
    found = samples(answer.text)
    assert found[f'holdfast_runs_started_total{{type="{ORDER}"}}'] == 2
    assert not families(answer.text) & {one.name for one in PROCESS_METRICS}
    assert "holdfast_workers" not in families(answer.text)


@pytest.mark.spec("TEN-1", "TEN-2")
def test_tenants_are_shown_when_an_operator_asks_for_them(filled):
    operator = filled.key(Scope.OPERATOR)
    found = samples(filled.ask("GET", "/metrics", operator, params={"tenants": "true"}).text)
    started = {
        tenant: found[f'holdfast_runs_started_total{{type="{ORDER}",tenant="{tenant}"}}']
        for tenant in (MINE, OTHERS)
    }
    assert started == {MINE: 2, OTHERS: 1}
    one = samples(filled.ask("GET", "/metrics", operator, params={"tenant": OTHERS}).text)
    assert one[f'holdfast_runs_started_total{{type="{ORDER}"}}'] == 1
    refused = filled.ask("GET", "/metrics", filled.key(Scope.METRICS), params={"tenants": "true"})
    assert (refused.status_code, refused.json()["code"]) == (403, "scope-missing")


@pytest.mark.spec("OPS-2", "OPS-7")
def test_a_store_that_does_not_answer_is_a_metric_and_no_error(filled, monkeypatch):
    from holdfast.errors import Unavailable

    async def gone(*_):
        raise Unavailable("the store is gone")

    monkeypatch.setattr(type(filled.app.store), "scale", gone)
    answer = filled.ask("GET", "/metrics", filled.key(Scope.OPERATOR))
    assert answer.status_code == 200
    assert samples(answer.text)["holdfast_store_up"] == 0
    assert filled.ask("GET", "/scale", filled.key(Scope.METRICS)).status_code == 503


@pytest.mark.spec("OPS-7", "TEN-1")
def test_the_counts_of_a_key_are_those_of_its_tenant(filled):
    for path, found in (
        ("/counts", lambda answer: answer["by_type"][ORDER]["pending"]),
        ("/rates", lambda answer: sum(one["number"] for one in answer["items"])),
        ("/scale", lambda answer: answer["due"]),
    ):
        mine = filled.key(Scope.METRICS)
        assert found(filled.ask("GET", path, mine).json()) == 2, path
        assert filled.ask("GET", path, mine, params={"tenant": OTHERS}).status_code == 403
        operator = filled.key(Scope.OPERATOR)
        assert found(filled.ask("GET", path, operator, params={"tenant": "*"}).json()) == 3, path
        assert found(filled.ask("GET", path, operator, params={"tenant": OTHERS}).json()) == 1, path


@pytest.mark.spec("OPS-7")
def test_the_scaling_signal_can_be_limited_to_types_and_keeps_its_sums(filled):
    key = filled.key(Scope.METRICS)
    for types, due in ((["shop.%"], 2), ([ORDER, "x"], 2), (["shop.mail.v1"], 0), (["order"], 0)):
        answer = filled.ask("GET", "/scale", key, params={"type": types}).json()
        assert (answer["due"], answer["load"]) == (due, due), types
        assert (answer["oldest_due_seconds"] > 0) == bool(due)
    assert filled.ask("GET", "/scale", key, params={"type": "a%b"}).status_code == 422


def test_rates_end_at_the_limit_and_say_so(filled):
    key, now = filled.key(Scope.METRICS), datetime.now(UTC)
    filled.run(filled.app.start, "shop.quick.v1")
    first = filled.ask("GET", "/rates", key, params={"limit": 1}).json()
    assert (len(first["items"]), first["more"]) == (1, True)
    assert filled.ask("GET", "/rates", key).json()["more"] is False
    later = {"since": (now + timedelta(hours=1)).isoformat()}
    assert filled.ask("GET", "/rates", key, params=later).json() == {"items": [], "more": False}
    for bad in ({"limit": 0}, {"limit": 10_001}, {"since": "2030-01-01T00:00:00"}, {"until": "soon"}):
        assert filled.ask("GET", "/rates", key, params=bad).status_code == 422, bad
