"""Values on the wire: exact, large, odd; and items that are refused without harm to others."""

from __future__ import annotations

import json
from uuid import UUID

import msgspec
import pytest

import holdfast as hf
from holdfast.records import Scope
from holdfast.sealing import Encrypt
from holdfast.wire import requests
from tests.http.kit import Kit
from tests.http.work.kit import Worker, get, problem, start

EXACT = [
    "9007199254740993", "-9007199254740993", "123456789012345678901234567890", "1.10", "1e5", "0.1",
    '"\\u00e9\\u2028\\u0001"', '"é😀\\ud83d\\ude00"', '"\\/"', '{"b":1,"a":[{},[],null,true]}', '""',
    "3.141592653589793238462643383279", "-0", "-0.0", "[]",
]  # fmt: skip


def sent(worker, text):
    """Send the text of a body as it is."""
    headers = {"content-type": "application/json"}
    response = worker.kit.ask("POST", "/leases/batch", worker.key, content=text.encode(), headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["items"]


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_values_pass_exactly_as_they_are_written(kit, worker):
    run = start(kit)
    lease = worker.one()
    steps = ",".join(f'{{"key": "s{n}", "output": {text}}}' for n, text in enumerate(EXACT))
    item = json.dumps(lease.item("checkpoint"))[:-1].replace('"steps": [], ', "").replace(', "steps": []', "")
    (answer,) = sent(worker, f'{{"items": [{item}, "steps": [{steps}]}}]}}')
    assert answer["answer"] == "applied"
    stored = kit.run(kit.app.store.steps, *_id(run))
    assert [one.output for one in stored] == EXACT
    lease.send("release")
    response = kit.ask("POST", "/leases/claim", worker.key,
                       json={"worker": "w", "runtime": "go", "types": worker.types, "slots": 1})  # fmt: skip
    for text in EXACT:
        assert f'"output":{text}' in response.text


def _id(run):
    return UUID(run), "default"


def nulls(record):
    """Null for every field of a record that may be left out."""
    return {one.name: None for one in msgspec.structs.fields(record) if not one.required}


@pytest.mark.spec("HTTP-3")
def test_null_means_that_a_field_was_left_out(kit, worker):
    run = start(kit)
    worker.register(**nulls(requests.RegisterRequest))
    (lease,) = worker.claim(**nulls(requests.ClaimRequest))
    step = {**nulls(requests.StepData), "key": "a"}
    child = {**nulls(requests.ChildData), "type": "shop.ship.v1"}
    event, message = {"name": "e", "topic": "t", **nulls(requests.EventData)}, {"sink": "s", "step": "a"}
    empty = nulls(requests.BatchItem)
    rows = {"events": [event], "messages": [{**nulls(requests.MessageData), **message}]}
    steps = [step, {**nulls(requests.StepData), "key": "c", "kind": "child", "child": child}]
    answer = lease.send("checkpoint", **{**empty, **rows, "steps": steps})
    assert (answer["answer"], list(answer["children"])) == ("applied", ["c"])
    assert worker.beat({**nulls(requests.RenewedLease), **lease.named}, lease_ms=None)["leases"][0]["renewed"]
    assert set(worker.load(lease, after=None, bytes=None, record=None)["steps"][0]) >= {"key", "output"}
    states = {"leases": [{**lease.named, "pause": None}], "wait_ms": None}
    assert worker.ask("/leases/states", states)["leases"][0]["state"] == "held"
    again = {**nulls(requests.ContinueData), "params": {"n": None}}
    assert lease.send("complete", **{**empty, "steps": None, "continue_as": again})["next"] is not None
    assert (get(kit, run).status, worker.one()["params"]) == ("succeeded", {"n": None})


@pytest.mark.spec("HTTP-3")
def test_null_in_a_field_that_is_needed_is_refused(kit, worker):
    start(kit)
    lease = worker.one()
    assert problem(lease.send("checkpoint", {"key": None})) == (422, "bad-value")
    worker.ask("/leases/heartbeat", {"worker": None, "leases": []}, 422)
    worker.ask("/leases/heartbeat", {"worker": "w", "leases": None}, 422)
    worker.ask("/leases/heartbeat", {"worker": "w", "leases": [None]}, 422)


@pytest.mark.spec("HTTP-3")
def test_a_value_of_4_mib_passes_and_a_larger_one_is_refused(kit, worker):
    run = start(kit)
    lease = worker.one()
    large = "x" * ((4 << 20) - 2)
    assert lease.send("checkpoint", {"key": "large", "output": large})["answer"] == "applied"
    answer = lease.send("checkpoint", {"key": "larger", "output": large + "x"})
    assert problem(answer) == (413, "too-large")
    assert lease.send("release")["answer"] == "applied"
    lease = worker.one(bytes=1000)
    assert (lease["unread"], lease["steps"], lease["params"]) == (True, [], None)
    page = worker.load(lease)
    assert page["steps"][0]["output"] == large
    assert lease.send("complete", result=large)["status"] == "succeeded"
    assert get(kit, run).result == large


@pytest.mark.spec("HTTP-3")
def test_a_large_record_is_read_in_pages(kit, worker):
    start(kit, {"id": "p" * 100}, labels={"a": "b"})
    lease = worker.one()
    for number in range(5):
        lease.send("checkpoint", {"key": f"s{number}", "output": "x" * 1000})
    lease.send("release")
    lease = worker.one(bytes=0)
    assert lease["unread"]
    page, pages, found = worker.load(lease, bytes=2500), 1, []
    assert (page["params"], page["labels"], page["record"]) == ({"id": "p" * 100}, {"a": "b"}, None)
    while True:
        found += [one["key"] for one in page["steps"]]
        if not page["more"]:
            break
        page, pages = worker.load(lease, bytes=2500, after=page["steps"][-1]["seq"]), pages + 1
        assert page["params"] is None
    assert found == [f"s{n}" for n in range(5)]
    assert pages > 1
    record = worker.load(lease, record=True)["record"]
    assert (record["priority"], record["error"]) == (100, None)
    lease.send("release")
    assert worker.load(lease, 409)["code"] == "lease-lost"


BAD = {
    "no steps": {"op": "checkpoint"},
    "no error": {"op": "fail"},
    "error without kind": {"op": "fail", "error": {"message": "x"}},
    "no topic": {"op": "park", "steps": [{"key": "e", "kind": "event", "status": "waiting"}]},
    "no time": {"op": "park", "steps": [{"key": "s", "kind": "sleep", "status": "waiting"}]},
    "a task that waits": {"op": "checkpoint", "steps": [{"key": "s", "status": "waiting", "topic": "x"}]},
    "two times": {"op": "park", "steps": [
        {"key": "s", "kind": "sleep", "status": "waiting", "delay_ms": 1, "until": "2026-01-01T00:00:00Z"}]},
    "ready outside of a retry": {"op": "checkpoint", "steps": [{"key": "a", "status": "ready"}]},
    "running": {"op": "checkpoint", "steps": [{"key": "a", "status": "running"}]},
    "unknown kind": {"op": "checkpoint", "steps": [{"key": "a", "kind": "dance"}]},
    "empty key": {"op": "checkpoint", "steps": [{"key": ""}]},
    "NUL in a key": {"op": "checkpoint", "steps": [{"key": "a\0b"}]},
    "long key": {"op": "checkpoint", "steps": [{"key": "k" * 701}]},
    "NUL in a value": {"op": "complete", "result": "a\0b"},
    "sealed mark": {"op": "complete", "result": {"holdfast.sealed": 1}},
    "deep": {"op": "complete", "result": json.loads("[" * 65 + "]" * 65)},
    "a log row without level": {"op": "complete", "logs": [{"message": "x"}]},
    "a log row that is no object": {"op": "complete", "logs": [1]},
    "progress": {"op": "complete", "progress": {"done": "x"}},
    "a wrong type": {"op": "complete", "known": "x"},
    "negative": {"op": "retry", "delay_ms": -1, "error": {"kind": "error"}},
    "reserved child": {"op": "complete", "steps": [
        {"key": "c", "kind": "child", "child": {"type": "holdfast.bulk.v1"}}]},
    "ask": {"op": "park", "steps": [
        {"key": "g", "kind": "approval", "status": "waiting", "ask": {"ask": 1}}]},
    "no seq": {"op": "complete", "seq": None},
    "a long key": {"op": "checkpoint", "steps": [{"key": "k" * 701}]},
    "a key too long for an index": {"op": "checkpoint", "steps": [{"key": "\U00020000" * 660}]},
}  # fmt: skip


@pytest.mark.spec("HTTP-3", "HTTP-4")
def test_a_wrong_item_is_refused_alone_and_changes_nothing(kit, worker):
    for number in range(2):
        start(kit, number)
    lease, good = worker.claim()
    for name, fields in BAD.items():
        step = {"key": f"of {name}"}
        answers = worker.batch({**lease.item("release"), "seq": 1, **fields}, good.item("checkpoint", step))
        assert problem(answers[0]) == (422, "bad-value"), (name, answers[0])
        assert answers[0]["run"] == lease.run
        assert answers[1]["answer"] == "applied", name
    assert [one.type for one in kit.run(kit.app.trail, lease.run)] == ["created", "leased"]
    (answer,) = worker.batch({**lease.item("fail", error={"kind": "usage"}), "seq": 1})
    assert answer["status"] == "failed"


@pytest.mark.spec("HTTP-3")
def test_two_items_of_one_run_in_a_batch(kit, worker):
    start(kit)
    lease = worker.one()
    first, second = worker.batch(lease.item("checkpoint", {"key": "a"}), lease.item("complete"))
    assert first["answer"] == "applied"
    assert problem(second) == (422, "bad-value")
    assert lease.item("x")["seq"] == 3
    (answer,) = worker.batch({**lease.item("complete"), "seq": 2})
    assert answer["status"] == "succeeded"


@pytest.mark.spec("HTTP-4")
def test_a_batch_that_is_no_batch(worker):
    for body, status in (({}, 422), ({"items": 1}, 422), ({"items": [{}] * 1001}, 422), ([], 422)):
        assert worker.ask("/leases/batch", body, status)["code"] == "bad-value"
    assert worker.batch() == []
    (answer,) = worker.batch({})
    assert (answer["run"], problem(answer)) == (None, (422, "bad-value"))


@pytest.mark.spec("HTTP-3")
def test_errors_are_cut(kit, worker):
    run = start(kit)
    error = {"kind": "fatal", "type": "E", "message": "m" * 10_000, "traceback": "t" * 100_000}
    assert worker.one().send("fail", error=error)["status"] == "failed"
    found = get(kit, run).error
    assert (len(found.message), len(found.traceback)) == (4000, 16_000)


@pytest.mark.spec("HTTP-3")
def test_a_sealed_store(tmp_path):
    url = f"sqlite:///{tmp_path}/sealed.db"
    with Kit(hf.App(url, codec=Encrypt({"one": b"k" * 32}))) as kit:
        worker, run = Worker(kit, key=kit.key(Scope.WORK)), start(kit, {"card": "4711"})
        lease = worker.one()
        assert lease["params"] == {"card": "4711"}
        lease.send("checkpoint", {"key": "charge", "output": "receipt"})
        wait = {"key": "event:paid", "kind": "event", "status": "waiting", "topic": "paid"}
        kit.run(kit.app.emit, "paid", "secret", id="e1")
        assert lease.send("park", wait, known=1)["settled"][0]["output"]["payload"] == "secret"
        lease.send("release")
        inner = kit.run(kit.app.store.inner.steps, *_id(run))
        assert all("holdfast.sealed" in one.output for one in inner)
    with Kit(hf.App(url)) as kit:  # a server without the key
        worker = Worker(kit, key=kit.key(Scope.WORK))
        assert worker.claim() == []
        assert "sealed" in get(kit, run).last_error
