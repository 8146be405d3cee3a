"""Fifty equal starts at once over a real server are one run, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast as hf
from tests.http.kit import ALL, Kit, new_key, shop, store_of
from tests.http.real import ask, served

BODY = {"type": "shop.quick.v1", "params": {"amount": 1}, "delay": 3600}


@pytest.mark.spec("HTTP-1")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_fifty_equal_starts_at_once_are_one_run(kind, request, tmp_path):
    app = shop(store_of(kind, request, tmp_path))
    with served(app) as (port, call):
        _, key = call(new_key, app.store, "default", ALL)
        said = ["once", '"once"'] * 25
        with ThreadPoolExecutor(50) as pool:
            answers = list(
                pool.map(lambda one: ask(port, "POST", "/runs", key, BODY, idempotency_key=one), said)
            )
        assert sorted(status for status, _, _ in answers) == [200] * 49 + [201]
        assert len({body["id"] for _, _, body in answers}) == 1
        assert [body["created"] for status, _, body in answers if status == 201] == [True]
        first = answers[0][2]["id"]
        status, _, problem = ask(port, "POST", "/runs", key, {**BODY, "params": 2}, idempotency_key="once")
        assert (status, problem["code"], problem["run"]) == (409, "key-reused", first)
        assert ask(port, "GET", "/runs/count", key)[2]["count"] == 1


@pytest.mark.spec("HTTP-1", "START-4", "START-6")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_the_same_start_by_a_bare_name_gives_its_run_after_a_newer_version_is_published(
    kind, request, tmp_path
):
    store = store_of(kind, request, tmp_path)
    first, second = hf.App(store), hf.App(store)
    for app, version in ((first, 1), (second, 2)):
        app.workflow(f"shop.pack.v{version}")(_pack)
    with Kit(hf.App(store)) as kit:
        kit.run(first.publish)
        key = kit.key()
        body = {"type": "shop.pack", "params": {"b": 1.0, "a": 2}, "key": "once"}
        began = kit.ask("POST", "/runs", key, json=body)
        kit.run(second.publish)
        again = kit.ask("POST", "/runs", key, json=body)
        assert (began.status_code, again.status_code) == (201, 200)
        assert again.json() == began.json() | {"created": False}
        assert again.json()["type"] == "shop.pack.v1"
        batch = kit.ask("POST", "/runs/batch", key, json={"starts": [body, {**body, "key": "other"}]})
        said = [(one["run"]["type"], one["run"]["created"]) for one in batch.json()["items"]]
        assert said == [("shop.pack.v1", False), ("shop.pack.v2", True)]
        for other in ({"params": 2}, {"type": "shop.pack.v2"}):  # not the same start
            refused = kit.ask("POST", "/runs", key, json={**body, **other})
            assert (refused.status_code, refused.json()["run"]) == (409, began.json()["id"])
            assert "another key would start another run" in refused.json()["detail"]
        assert kit.ask("GET", "/runs/count", key).json()["count"] == 2


async def _pack(ctx, params=None):
    return params
