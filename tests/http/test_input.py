"""Hostile input: every request is answered with a 4xx, and nothing is changed."""

from __future__ import annotations

import json
import threading

import pytest

from holdfast import codec
from holdfast.http import parsing
from holdfast.http.operation import all_operations
from holdfast.http.problems import CAUSES, Code
from holdfast.records import Scope
from tests.http.kit import Kit
from tests.http.rows import ROWS

RUN = "shop.quick.v1"
JSON = {"content-type": "application/json"}
DEEP = 100_000
BODIES = {
    b"": 422, b" ": 400, b"null": 422, b"[]": 422, b'"x"': 422, b"1": 422, b"true": 422,
    b"{": 400, b"}": 400, b"{}": 422, b"{]": 400, b"{'type': 1}": 400,
    b'{"type": "shop.quick.v1"}{}': 400, b'{"type": "shop.quick.v1"} x': 400,
    b"\xef\xbb\xbf{}": 400, b"\xff\xfe{\x00}\x00": 400, b'{"type": "\xff"}': 400,
    b'{"type": "\xc0\xaf"}': 400,
    b'{"type": "\xed\xa0\x80"}': 400, b'{"type": "\\ud800"}': 400, b'{"type": "\\u0000"}': 422,
    b'{"type": "shop.quick.v1", "type": "shop.quick.v1"}': 400,
    b'{"type": "shop.quick.v1", "params": {"a": 1, "a": 2}}': 400,
    b'{"type": "shop.quick.v1", "params": {"a": 1, "\\u0061": 2}}': 400,
    b'{"type": "shop.quick.v1", "params": NaN}': 400, b'{"type": "shop.quick.v1", "params": Infinity}': 400,
    b'{"type": "shop.quick.v1", "params": -Infinity}': 400, b'{"type": "shop.quick.v1", "params": 01}': 400,
    b'{"type": "shop.quick.v1", "params": "\\u0000"}': 422,
    b'{"type": "shop.quick.v1", "params": "\\ud800"}': 400,
    b'{"type": "shop.quick.v1", "params": 1e999}': 422,
    b'{"type": "shop.quick.v1", "priority": 1e999}': 422, b'{"type": "shop.quick.v1", "priority": 1.5}': 422,
    b'{"type": "shop.quick.v1", "priority": "1"}': 422, b'{"type": "shop.quick.v1", "priority": true}': 422,
    b'{"type": "shop.quick.v1", "priority": ' + b"9" * 5000 + b"}": 422,
    b'{"type": "shop.quick.v1", "delay": -1}': 422, b'{"type": "shop.quick.v1", "delay": 1e300}': 422,
    b'{"type": "shop.quick.v1", "run_at": "2026-01-01T00:00:00"}': 422,
    b'{"type": "shop.quick.v1", "run_at": "9999-12-31T23:59:59-23:59"}': 422,
    b'{"type": "shop.quick.v1", "run_at": "0001-01-01T00:00:00+23:59"}': 422,
    b'{"type": "shop.quick.v1", "labels": {"a": 1}}': 422,
    b'{"type": "shop.quick.v1", "labels": {"a": "\\u0000"}}': 422,
    b'{"type": "shop.quick.v1", "key": ""}': 422,
    b'{"type": "shop.quick.v1", "key": "\\u001f"}': 422, b'{"type": "shop.quick.v1", "odd": 1}': 422,
    b'{"type": "shop.quick.v1", "parent": "x"}': 422, b'{"type": "holdfast.bulk.v1"}': 422,
    b'{"type": "shop.quick.v1", "params": ' + b"[" * DEEP + b"]" * DEEP + b"}": 400,
    b"[" * DEEP: 400, b'{"a":' * DEEP: 400,
}  # fmt: skip


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_bad_body_is_refused_and_changes_nothing(body, input_kit):
    kit, key = input_kit
    response = kit.ask("POST", "/runs", key, content=body, headers=JSON)
    assert response.status_code == BODIES[body], (body[:80], response.text)
    assert response.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in response.text
    assert kit.ask("GET", "/runs", key).json()["items"] == []


@pytest.fixture(scope="module")
def input_kit():
    with Kit() as kit:
        yield kit, kit.key(*Scope)


@pytest.mark.spec("HTTP-4")
def test_only_json_is_taken(input_kit):
    kit, key = input_kit
    body = json.dumps({"type": RUN}).encode()
    for said in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                 "application/json5",
                 "application/json; charset=utf-16", "application/jsonx", "text/json"):  # fmt: skip
        response = kit.ask("POST", "/runs", key, content=body, headers={"content-type": said})
        assert (response.status_code, response.json()["code"]) == (415, "not-json"), said
    response = kit.ask("POST", "/runs", key, content=body)
    assert response.status_code == 415
    response = kit.ask("POST", "/runs", key, content=body, headers={**JSON, "content-encoding": "gzip"})
    assert response.status_code == 415


@pytest.mark.spec("HTTP-4")
def test_a_body_has_a_limit(input_kit):
    kit, key = input_kit
    for path, size in (("/runs", 5 << 20), ("/keys", 70_000), ("/runs/batch", 10 << 20)):
        body = b'{"type": "' + b"x" * size + b'"}'
        response = kit.ask("POST", path, key, content=body, headers=JSON)
        assert (response.status_code, response.json()["code"]) == (413, "too-large"), path
        chunks = (body[at : at + 65536] for at in range(0, len(body), 65536))
        response = kit.ask("POST", path, key, content=chunks, headers=JSON)
        assert response.status_code == 413, path
    value = json.dumps({"type": RUN, "params": "x" * ((4 << 20) + 1)}).encode()
    assert kit.ask("POST", "/runs", key, content=value, headers=JSON).status_code == 413
    many = {"starts": [{"type": RUN}] * 501}
    assert kit.ask("POST", "/runs/batch", key, json=many).status_code == 422


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("name", [name for name, one in all_operations().items() if one.scopes])
def test_odd_values_in_each_place(name, input_kit):
    kit, key = input_kit
    operation = all_operations()[name]
    for odd in ("%00", "%ff", "%2e%2e", "%0d%0aset-cookie:a=b", "x" * 3000):
        for path in {operation.path.replace("{" + one + "}", odd) for one in _names(operation.path)}:
            filled = path
            for one in _names(path):
                filled = filled.replace("{" + one + "}", "x")
            response = kit.ask(operation.method, filled, key, headers=JSON, content=b"{}")
            assert response.status_code < 500, (filled, response.text)
            assert "set-cookie" not in response.headers
    row = ROWS[name]
    query = getattr(operation.takes.get("query"), "__struct_fields__", ())
    _, path, options = row.sent(operation, _Odd())
    options.pop("params")
    for field in (*query, "odd", "", "tenant[]"):
        for odd in ("", "\0", "x" * 3000, "99999999999999999999", "é"):
            response = kit.ask(operation.method, path, key, params={field: odd}, **options)
            assert response.status_code < 500, (name, field, odd, response.text)
    response = kit.ask(operation.method, f"{path}?{'a=1&' * 2000}", key, **options)
    assert response.status_code == 422
    response = kit.ask(operation.method, f"{path}?a=%ff&%f", key, **options)
    assert response.status_code == 422


def _names(path):
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


class _Odd:
    message, key, schedule, cursor = "none", "0" * 12, "no such schedule", "A"

    def __getitem__(self, name):
        return "01a1e9cd-e750-7323-987a-349e40ae595e"


@pytest.mark.spec("HTTP-4")
def test_the_word_null_is_no_value(input_kit):
    kit, key = input_kit
    for name in ("parent", "created_since", "waiting_on", "limit"):
        assert kit.ask("GET", "/runs", key, params={name: "null"}).status_code == 422, name
    assert kit.ask("GET", "/runs", key, params={"key": "null"}).status_code == 200
    assert kit.ask("GET", "/events", key, headers={"last-event-id": "null"}).status_code == 422


@pytest.mark.spec("HTTP-4")
def test_every_code_has_a_cause():
    assert set(CAUSES) == set(Code)
    ours = {"internal", "store-unavailable", "shutting-down", "server-full"}
    assert all(400 <= cause.status < 500 or code in ours
               for code, cause in CAUSES.items())  # fmt: skip


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("value", ["1", "-1", "", "x", "1.5", "99999999999999999999", "\u0663"])
def test_odd_event_ids(value, input_kit):
    kit, key = input_kit
    headers = {"accept": "text/event-stream", "last-event-id": value.encode()}
    response = kit.ask("GET", "/runs/01a1e9cd-e750-7323-987a-349e40ae595e/events", key, headers=headers)
    assert response.status_code in {404, 422}


@pytest.mark.spec("HTTP-4")
def test_an_empty_body_is_a_body_without_fields():
    with Kit() as kit:
        key = kit.key()
        run = kit.ask("POST", "/runs", key, json={"type": RUN, "delay": 3600}).json()["id"]
        assert kit.ask("POST", f"/runs/{run}/pause", key, headers=JSON, content=b"").status_code == 200


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize(("size", "is_in_thread"), [(10, False), (parsing.LARGE_BYTES, True)])
def test_a_large_body_is_parsed_in_a_thread(size, is_in_thread, monkeypatch):
    threads, original = [], parsing.parsed_body

    def noting(text, wanted):
        threads.append(threading.current_thread())
        return original(text, wanted)

    monkeypatch.setattr(parsing, "parsed_body", noting)

    async def here():
        return threading.current_thread()

    with Kit() as kit:
        key, loop = kit.key(), kit.run(here)
        body = {"type": RUN, "params": "x" * size}
        assert kit.ask("POST", "/runs", key, json=body).status_code == 201
        assert kit.ask("POST", "/runs", key, json={**body, "odd": 1}).status_code == 422
        assert [one is not loop for one in threads] == [is_in_thread] * 2


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("batch", [False, True])
def test_large_values_are_never_built_on_the_event_loop(batch, monkeypatch):
    """Not their first reading, nor the making of the run."""
    sizes, original = {}, codec.decode_untyped

    def noting(text):
        thread = threading.current_thread()
        sizes[thread] = max(sizes.get(thread, 0), len(text))
        return original(text)

    monkeypatch.setattr(codec, "decode_untyped", noting)

    async def here():
        return threading.current_thread()

    with Kit() as kit:
        key, loop = kit.key(), kit.run(here)
        if batch:
            params = [[[[]] * 10] * 500] * 1
            body = {"starts": [{"type": RUN, "params": params}] * 40}
            answer = kit.ask("POST", "/runs/batch", key, json=body)
            runs = [one["run"]["id"] for one in answer.json()["items"]]
        else:
            params = [[[[]] * 10] * 500] * 40
            runs = [kit.ask("POST", "/runs", key, json={"type": RUN, "params": params}).json()["id"]]
        assert max(sizes.get(loop, 0), 1) < 1000
        stored = kit.ask("GET", f"/runs/{runs[-1]}", key).json()
        assert stored["params"] == params
