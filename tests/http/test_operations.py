"""Behaviour of the operations: each of them once on every store, and the rules of HTTP-1."""

from __future__ import annotations

import time

import pytest

from holdfast.http.examples import EXAMPLES
from holdfast.http.operation import all_operations
from holdfast.records import Scope
from tests.http.kit import ALL, CANARY, MINE, OTHERS, READ
from tests.http.rows import NAMED, ROWS

OPERATIONS = all_operations()
RUN = "shop.quick.v1"


@pytest.mark.spec("HTTP-1")
@pytest.mark.slow
def test_every_operation_works_on_things_of_the_own_tenant(any_kit):
    key = any_kit.key(*Scope)
    rows = [*((name, row) for (name, _), row in NAMED.items()), *ROWS.items()]
    for name, row in rows:
        method, path, options = row.sent(OPERATIONS[name], any_kit.mine)
        response = any_kit.ask(method, path, key, **options)
        assert response.status_code in row.answers, (name, response.text)
        assert response.headers["x-content-type-options"] == "nosniff"
        if method != "GET" and OPERATIONS[name].audited:
            audit = any_kit.ask("GET", "/audit", key, params={"limit": 1}).json()["items"][0]
            assert (audit["action"], audit["outcome"]) == (name, "done")
            assert audit["request"] == response.headers["x-request-id"]


@pytest.mark.spec("HTTP-1")
def test_the_examples_of_the_document_are_valid(kit):
    key = kit.key(*Scope)
    for name, body in EXAMPLES.items():
        method, path, options = ROWS[name].sent(OPERATIONS[name], _Nothing())
        response = kit.ask(method, path, key, **{**options, "json": body})
        missing = {404, *ROWS[name].answers}  # the example of a lease is nobody's
        assert response.status_code < 300 or response.status_code in missing, (name, response.text)


class _Nothing:
    message, key, schedule, cursor = "none", "0" * 12, "nightly", "A"

    def __getitem__(self, name):
        return "01a1e9cd-e750-7323-987a-349e40ae595e"


def test_every_operation_with_a_body_has_an_example():
    assert {name for name, one in OPERATIONS.items() if "body" in one.takes} <= set(EXAMPLES)


@pytest.mark.spec("HTTP-1")
def test_a_key_makes_a_start_safe_to_repeat(kit):
    key = kit.key()

    def start(idempotency_key, body):
        headers = {"idempotency-key": idempotency_key.encode()} if idempotency_key else {}
        return kit.ask("POST", "/runs", key, json={"type": RUN, **body}, headers=headers)

    first = start("one", {"params": {"a": 1}})
    assert first.status_code == 201
    assert first.json()["created"] is True
    for said, body in (("one", {}), ('"one"', {}), ("one", {"key": "one"}), ("", {"key": "one"})):
        again = start(said, {"params": {"a": 1}, **body})
        assert again.status_code == 200
        assert again.json() == {**first.json(), "created": False}
    other = start('"one"', {"params": {"a": 2}})
    assert (other.status_code, other.json()["code"]) == (409, "key-reused")
    assert other.json()["run"] == first.json()["id"]
    assert start("one", {"key": "two"}).status_code == 422
    for bad in ('""', '"', "x" * 256, "\x1f", "a\x1fb"):
        response = start(bad, {})
        assert response.status_code in {201, 422}, bad
        assert response.status_code == 422 or bad == '"', bad
    assert start("schlüssel", {}).json()["id"] == start("schlüssel", {}).json()["id"]


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("field", ["id", "tenant", "connection", "api_key"])
def test_a_client_cannot_choose_the_id_or_the_tenant_of_a_run(kit, field):
    key, body = kit.key(), {"type": RUN, field: "01a1e9cd-e750-7323-987a-349e40ae595e"}
    assert kit.ask("POST", "/runs", key, json=body).status_code == 422
    assert kit.ask("POST", "/runs/batch", key, json={"starts": [body]}).status_code == 422
    assert kit.ask("GET", "/runs", key).json() == {"items": [], "next": None}


@pytest.mark.spec("HTTP-1")
def test_many_starts_are_answered_one_by_one(kit):
    key = kit.key()
    starts = [{"type": RUN, "key": "a"}, {"type": "shop.nope"}, {"type": RUN, "key": "a", "params": 1},
              {"type": RUN, "labels": {"a": "b"}}]  # fmt: skip
    items = kit.ask("POST", "/runs/batch", key, json={"starts": starts}).json()["items"]
    assert [one.get("problem", {}).get("code") for one in items] == [
        None,
        "workflow-not-found",
        "key-reused",
        None,
    ]
    assert items[2]["problem"]["run"] == items[0]["run"]["id"]
    assert kit.ask("GET", "/runs/count", key).json() == {"count": 2, "more": False}


@pytest.mark.spec("HTTP-1")
def test_pages_hold_every_run_once(kit):
    key = kit.key()
    made = kit.ask("POST", "/runs/batch", key, json={"starts": [{"type": RUN}] * 7}).json()["items"]
    seen, cursor = [], None
    while True:
        page = kit.ask(
            "GET", "/runs", key, params={"limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [one["id"] for one in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert sorted(seen) == sorted(one["run"]["id"] for one in made)


@pytest.mark.spec("HTTP-1")
def test_filters_of_runs(furnished_kit):
    key, mine = furnished_kit.key(*READ), furnished_kit.mine

    def found(**query):
        response = furnished_kit.ask("GET", "/runs", key, params=query)
        assert response.status_code == 200, response.text
        return {one["id"] for one in response.json()["items"]}

    broken = {mine["broken"], mine["retried"], mine["rewound"]}
    assert found(status="failed") == found(status="dead") == found(type="shop.broken.%") == broken
    assert found(status="waiting-approval") == {mine["gate"], mine["gate two"], mine["plan"]}
    assert found(key="key of done") == {mine["done"]}
    assert found(parent=mine["parent"]) == {mine["child"]}
    assert found(label="kind=priority") == {mine["priority"]}
    assert mine["done"] in found(contains=CANARY)
    assert found(contains="not there") == set()
    assert found(error="no such%") == set()
    assert found(created_since="2199-01-01T00:00:00Z") == set()
    refused = {"status": "odd", "label": "=", "limit": 0, "created_since": "2026-01-01", "roots": "maybe"}
    for name, value in refused.items():
        assert furnished_kit.ask("GET", "/runs", key, params={name: value}).status_code == 422, name


@pytest.mark.spec("HTTP-1")
def test_a_result_is_waited_for(kit):
    key = kit.key()
    run = kit.ask("POST", "/runs", key, json={"type": RUN, "params": [1]}).json()["id"]
    open_ = kit.ask("GET", f"/runs/{run}/result", key, params={"wait": 0.05})
    assert (open_.status_code, open_.json()["status"]) == (202, "pending")
    kit.work(run)
    ended = kit.ask("GET", f"/runs/{run}/result", key, params={"wait": 5})
    assert (ended.status_code, ended.json()["result"]) == (200, [1])


@pytest.mark.spec("HTTP-4")
def test_an_illegal_move_names_the_true_status(furnished_kit):
    key, run = furnished_kit.key(), furnished_kit.mine["done"]
    response = furnished_kit.ask("POST", f"/runs/{run}/pause", key, json={})
    assert response.status_code == 409
    problem = response.json()
    assert (problem["code"], problem["run"], problem["run_status"]) == ("illegal-move", run, "succeeded")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.spec("TEN-1")
def test_no_key_grants_what_it_lacks(kit):
    admin, worker = kit.key(Scope.ADMIN), kit.key(Scope.ADMIN, Scope.WORK, patterns=("shop.%",))
    operator = kit.key(*Scope)

    def create(key, *scopes, **options):
        body = {"name": f"{scopes} {options}", "scopes": scopes, **options}
        return kit.ask("POST", "/keys", key, json=body, params={"tenant": MINE})

    assert create(admin, "admin").status_code == 201
    for scope in Scope:
        if scope is not Scope.ADMIN:
            assert create(admin, scope).json()["code"] == "scope-missing", scope
    assert create(operator, "operator").status_code == 403
    assert create(worker, "work").status_code == 403
    assert create(worker, "work", patterns=["billing.%"]).status_code == 403
    assert create(worker, "work", patterns=["%"]).status_code == 403
    assert create(worker, "work", patterns=["shop.order.%"]).status_code == 201
    for path in ("rotate", "revoke"):
        response = kit.ask("POST", f"/keys/{operator.split('_')[1]}/{path}", admin, json={})
        assert response.status_code == 403, path
    reader = kit.key(Scope.RUNS_READ)
    assert kit.ask("POST", f"/keys/{reader.split('_')[1]}/rotate", admin, json={}).status_code == 403
    assert kit.ask("POST", f"/keys/{reader.split('_')[1]}/revoke", admin).status_code == 200


@pytest.mark.spec("TEN-1")
def test_a_secret_is_shown_once(kit):
    admin = kit.key(Scope.ADMIN)
    made = kit.ask("POST", "/keys", admin, json={"name": "new", "scopes": ["admin"]}).json()
    secret, id_ = made["secret"], made["key"]["id"]
    assert kit.ask("GET", "/keys", secret).status_code == 200
    turned = kit.ask("POST", f"/keys/{id_}/rotate", admin, json={"overlap": 60}).json()["secret"]
    assert turned != secret
    kit.api.access._known.clear()
    for key in (secret, turned):
        listed = kit.ask("GET", "/keys", key)
        assert listed.status_code == 200
        assert secret not in listed.text
        assert turned not in listed.text
        assert "hash" not in listed.text
    kit.ask("POST", f"/keys/{id_}/rotate", admin, json={"overlap": 0})
    kit.api.access._known.clear()
    assert kit.ask("GET", "/keys", turned).status_code == 401


@pytest.mark.spec("TEN-3")
def test_a_key_has_limits(kit):
    slow = kit.key(rate=1.0)
    answers = [kit.ask("GET", "/runs", slow) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 429, 429]
    assert int(answers[1].headers["retry-after"]) >= 1
    assert answers[1].json()["retry_after_ms"] > 0
    few = kit.key(open_runs_max=2)
    answers = [kit.ask("POST", "/runs", few, json={"type": RUN}) for _ in range(3)]
    assert [one.status_code for one in answers] == [201, 201, 429]
    assert answers[2].json()["code"] == "open-runs-limit"
    assert "retry-after" in answers[2].headers


@pytest.mark.spec("TEN-2")
def test_an_operator_acts_for_one_tenant_or_reads_all(furnished_kit):
    kit, key = furnished_kit, furnished_kit.key(*Scope)
    both = kit.ask("GET", "/runs", key, params={"tenant": "*", "limit": 500}).json()["items"]
    assert {one["tenant"] for one in both} == {MINE, OTHERS}
    theirs = kit.ask("GET", "/runs", key, params={"tenant": OTHERS}).json()["items"]
    assert {one["tenant"] for one in theirs} == {OTHERS}
    assert kit.ask("GET", f"/runs/{kit.others['waits']}", key).status_code == 404
    assert kit.ask("GET", f"/runs/{kit.others['waits']}", key, params={"tenant": "*"}).status_code == 200
    for name in ("start", "start_many", "emit", "schedule", "unschedule", "pause_schedule", "create_key"):
        method, path, options = ROWS[name].sent(OPERATIONS[name], kit.mine)
        options["params"] = {"tenant": "*"}
        assert kit.ask(method, path, key, **options).status_code == 422, name


@pytest.mark.spec("HTTP-4")
def test_paths_and_methods_that_do_not_exist(kit):
    key = kit.key(*ALL)
    for path in (
        "/",
        "/nothing",
        "/runs/",
        "/runs/a/b/c",
        "/../etc/passwd",
        "/runs/%2e%2e/keys",
        "//runs",
        "/runs//steps",
    ):
        for given in (None, key):
            response = kit.ask("GET", path, given)
            assert response.status_code in {401, 404, 422}, path
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["request"] == response.headers["x-request-id"]
    odd = kit.ask("PATCH", "/runs", key)
    assert odd.status_code == 405
    assert odd.headers["allow"] == "GET, POST, HEAD"
    assert kit.ask("HEAD", "/runs", key).content == b""


@pytest.mark.spec("TEN-3")
def test_a_new_secret_gives_no_more_than_the_caller_has(kit):
    """Rotating a key is as good as making one: its end and its limits are those of the key."""
    in_an_hour = int((time.time() + 3600) * 1_000_000)
    limits = {"expires_at": in_an_hour, "rate": 5.0, "open_runs_max": 10}
    admin = kit.key(**limits)
    within = kit.key(**{**limits, "rate": 4.0, "expires_at": in_an_hour - 1_000_000, "open_runs_max": 9})
    assert kit.ask("POST", f"/keys/{within.split('_')[1]}/rotate", admin, json={}).status_code == 200
    assert kit.ask("POST", f"/keys/{admin.split('_')[1]}/rotate", admin, json={}).status_code == 200
    wider = [
        {**limits, "expires_at": None}, {**limits, "rate": None}, {**limits, "open_runs_max": None},
        {**limits, "expires_at": in_an_hour + 1_000_000}, {**limits, "rate": 6.0},
        {**limits, "open_runs_max": 11},
    ]  # fmt: skip
    kit.api.access._buckets.clear()
    for options in wider:
        kit.api.access._buckets.clear()  # the rate of the administrator is not what is tested
        key = kit.key(**options)
        refused = kit.ask("POST", f"/keys/{key.split('_')[1]}/rotate", admin, json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope-missing"), options
        assert "cannot give more than it has itself" in refused.json()["detail"]
        assert kit.ask("GET", "/whoami", key).status_code == 200  # it has its old secret


@pytest.mark.spec("TEN-3")
def test_an_administrator_revokes_any_key_of_the_tenant_but_an_operators(kit):
    admin = kit.key(Scope.ADMIN)
    more, operator = kit.key(), kit.key(Scope.OPERATOR, Scope.RUNS_READ)
    assert kit.ask("POST", f"/keys/{more.split('_')[1]}/revoke", admin).status_code == 200
    assert kit.ask("POST", f"/keys/{operator.split('_')[1]}/revoke", admin).status_code == 403
