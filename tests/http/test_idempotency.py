"""Fifty equal starts at once over a real server are one run, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.kit import ALL, new_key, shop, store_of
from tests.http.real import ask, served

BODY = {"type": "shop.quick.v1", "params": {"amount": 1}, "delay": 3600}


@pytest.mark.spec("HTTP-1")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
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
