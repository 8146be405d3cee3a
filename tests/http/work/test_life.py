"""The life of a run that is executed over the protocol: each operation of a batch, on each store."""

from __future__ import annotations

import pytest

from tests.http.work.kit import Worker, get, problem, start, trail

SLEEP = {"key": "sleep", "kind": "sleep", "status": "waiting", "delay_ms": 0}
ERROR = {"kind": "error", "type": "CardError", "message": "declined"}


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_a_run_with_a_step_a_wait_and_a_result(kit, worker):
    run = start(kit, {"id": 42}, labels={"customer": "7"})
    lease = worker.one()
    assert (lease.run, lease["type"], lease["kind"]) == (run, "shop.order.v1", "code")
    assert (lease["params"], lease["labels"], lease["steps"]) == ({"id": 42}, {"customer": "7"}, [])
    assert (lease["attempt"], lease["max_attempts"], lease["crashes"]) == (1, 3, 0)
    assert lease["created_ms"] <= 0
    assert lease["due_ms"] <= 0

    step = {"key": "charge", "output": {"receipt": 1}, "started_ms": 0, "cost": 0.25}
    answer = lease.send("checkpoint", step, started_ms=0)
    assert (answer["answer"], answer["status"], answer["seq"]) == ("applied", "leased", 1)

    wait = {"key": "event:paid", "kind": "event", "status": "waiting", "topic": "paid", "started_ms": 5}
    answer = lease.send("park", wait, known=1)
    assert (answer["status"], answer["settled"], answer["known"]) == ("waiting", [], 2)
    assert worker.claim() == []

    kit.run(kit.app.emit, "paid", {"by": "card"}, id="e1")
    lease = worker.one()
    assert lease["woken_by"] == ["event:paid"]
    charge, paid = lease["steps"]
    assert (charge["key"], charge["status"], charge["output"]) == ("charge", "succeeded", {"receipt": 1})
    assert charge["started_ms"] <= charge["finished_ms"] <= 0
    assert (paid["kind"], paid["status"], paid["output"]["payload"]) == ("event", "succeeded", {"by": "card"})
    assert paid["output"]["topic"] == "paid"
    answer = lease.send("complete", result=["done"])
    assert answer["status"] == "succeeded"
    found = get(kit, run)
    assert (found.status, found.result, found.cost) == ("succeeded", ["done"], 0.25)
    assert trail(kit, run) == ["created", "leased", "started", "step_succeeded", "waiting", "woken", "leased",
                               "succeeded"]  # fmt: skip


@pytest.mark.spec("HTTP-3")
def test_a_park_that_finds_its_event_goes_on_at_once(kit, worker):
    start(kit)
    kit.run(kit.app.emit, "paid", 10, id="e1")
    lease = worker.one()
    wait = {"key": "event:paid", "kind": "event", "status": "waiting", "topic": "paid"}
    answer = lease.send("park", wait, known=0)
    assert answer["status"] == "leased"
    (settled,) = answer["settled"]
    assert (settled["key"], settled["seq"], settled["output"]["payload"]) == (
        "event:paid",
        answer["known"],
        10,
    )
    assert lease.send("complete", result=None)["status"] == "succeeded"


@pytest.mark.spec("HTTP-3")
def test_a_sleep_and_a_timeout(kit, worker):
    start(kit)
    lease = worker.one()
    until = {"key": "sleep#2", "kind": "sleep", "status": "waiting", "until": "2020-01-01T00:00:00Z"}
    late = {"key": "event:no", "kind": "event", "status": "waiting", "topic": "no", "delay_ms": 0}
    answer = lease.send("park", SLEEP, until, late, known=0)
    assert answer["status"] == "leased"
    found = {one["key"]: one for one in answer["settled"]}
    assert {name: one["status"] for name, one in found.items()} == {
        "sleep": "succeeded", "sleep#2": "succeeded", "event:no": "failed"
    }  # fmt: skip
    assert found["sleep"]["output"] is None
    assert found["event:no"]["error"]["kind"] == "timeout"


@pytest.mark.spec("HTTP-3")
def test_a_failure(kit, worker):
    run = start(kit)
    lease = worker.one()
    step = {
        "key": "pay",
        "status": "failed",
        "attempts": 2,
        "max_attempts": 2,
        "error": {**ERROR, "kind": "fatal"},
    }
    assert lease.send("checkpoint", step)["status"] == "leased"
    error = {**ERROR, "kind": "fatal", "step": "pay", "attempt": 2, "max_attempts": 2, "traceback": "here"}
    assert lease.send("fail", error=error)["status"] == "failed"
    found = get(kit, run)
    assert (found.status, found.error.kind, found.error.step) == ("failed", "fatal", "pay")
    assert found.last_error == "fatal: CardError: declined"
    assert found.error.traceback == "here"


@pytest.mark.spec("HTTP-3")
def test_a_retry_in_place_and_one_in_the_queue(kit, worker):
    run = start(kit)
    lease = worker.one()
    ready = {
        "key": "pay",
        "status": "ready",
        "attempts": 1,
        "max_attempts": 3,
        "error": ERROR,
        "delay_ms": 100,
    }
    answer = lease.send("retry", ready, error=ERROR, delay_ms=100, in_place=True, refund=True)
    assert (answer["answer"], answer["status"]) == ("applied", "leased")
    ready = {**ready, "attempts": 2, "delay_ms": 60_000}
    answer = lease.send("retry", ready, error=ERROR, delay_ms=0, refund=True)
    assert answer["status"] == "pending"
    lease = worker.one()
    pay = lease.steps["pay"]
    assert (pay["status"], pay["attempts"], pay["error"]["message"]) == ("ready", 2, "declined")
    assert 50_000 < pay["due_ms"] <= 60_000
    assert lease["attempt"] == 1
    assert lease.send("retry", error=ERROR, delay_ms=0)["status"] == "pending"
    lease = worker.one()
    assert lease["attempt"] == 2
    assert get(kit, run).last_error == "error: CardError: declined"


@pytest.mark.spec("HTTP-3")
def test_a_release_counts_nothing(kit, worker):
    start(kit)
    lease = worker.one()
    assert lease.send("release")["status"] == "pending"
    again = worker.one()
    assert (again["attempt"], again["crashes"]) == (1, 0)
    assert again.fence > lease.fence


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_the_same_number_is_answered_as_the_first_time(kit, worker):
    run = start(kit)
    lease = worker.one()
    item = lease.item("checkpoint", {"key": "charge", "output": 1, "cost": 1})
    first, second = worker.batch(item)[0], worker.batch(item)[0]
    assert first == second
    wait = {"key": "event:paid", "kind": "event", "status": "waiting", "topic": "paid"}
    parked = lease.item("park", wait, known=1)
    first, second = worker.batch(parked)[0], worker.batch(parked)[0]
    assert first == second
    assert first["status"] == "waiting"
    kit.run(kit.app.emit, "paid", id="e1")
    lease = worker.one()
    ended = lease.item("complete", result=7, events=[{"name": "charge:emit1", "topic": "done"}])
    first, second = worker.batch(ended)[0], worker.batch(ended)[0]
    assert first == second
    assert first["status"] == "succeeded"
    found = get(kit, run)
    assert (found.cost, found.result) == (1, 7)
    assert trail(kit, run).count("succeeded") == 1


@pytest.mark.spec("HTTP-3")
def test_a_recorded_step_keeps_its_value(kit, worker):
    start(kit)
    lease = worker.one()
    assert lease.send("checkpoint", {"key": "charge", "output": "first"})["kept"] == []
    answer = lease.send("checkpoint", {"key": "charge", "output": "second"}, {"key": "mail"})
    assert answer["kept"] == [{"key": "charge", "output": "first"}]


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_a_stale_fence_writes_nothing(kit, worker):
    run = start(kit)
    old = worker.one()
    assert old.send("release")["status"] == "pending"
    new = Worker(kit).one()
    fields_of = {
        "checkpoint": {"steps": [{"key": "a"}]}, "complete": {"result": 1}, "park": {}, "release": {},
        "fail": {"error": ERROR}, "retry": {"error": ERROR, "delay_ms": 0},
    }  # fmt: skip
    for op, fields in fields_of.items():
        steps = fields.pop("steps", [])
        (answer,) = worker.batch({**old.item(op, *steps, **fields), "seq": 5})
        assert problem(answer) == (409, "lease-lost")
        assert "run_status" not in answer["problem"]
    assert get(kit, run).status == "leased"
    assert new.send("complete", result=2)["status"] == "succeeded"


@pytest.mark.spec("HTTP-3")
def test_one_stale_item_does_not_stop_the_others(kit, worker):
    for number in range(3):
        start(kit, number)
    one, two, three = worker.claim()
    two.send("release")
    Worker(kit).one()
    answers = worker.batch(one.item("complete", result=1), {**two.item("complete", result=1), "seq": 9},
                           three.item("complete", result=3))  # fmt: skip
    assert [answers[0]["status"], answers[2]["status"]] == ["succeeded", "succeeded"]
    assert problem(answers[1]) == (409, "lease-lost")
    assert get(kit, three.run).result == 3


@pytest.mark.spec("HTTP-3")
def test_an_item_of_an_older_lease_does_not_refuse_the_present_one(kit, worker):
    """A worker may hold a run again, and still have an item of its lease before."""
    start(kit)
    old = worker.one()
    late = {**old.item("complete", result=1), "seq": 9}
    old.send("release")
    answers = worker.batch(late, worker.one().item("complete", result=2))
    assert problem(answers[0]) == (409, "lease-lost")
    assert answers[1]["status"] == "succeeded"


@pytest.mark.spec("HTTP-3")
def test_a_cancelled_run(kit, worker):
    run = start(kit)
    lease = worker.one()
    kit.run(kit.app.cancel, run)
    (news,) = worker.beat(lease)["leases"]
    assert news["state"] == "cancelled"
    answer = lease.send("checkpoint", {"key": "charge"})
    assert problem(answer) == (409, "lease-lost")
    assert answer["problem"]["run_status"] == "cancelled"
    assert get(kit, run).status == "cancelled"


@pytest.mark.spec("HTTP-3")
def test_a_pause(kit, worker):
    run = start(kit)
    lease = worker.one()
    kit.run(kit.app.pause, run)
    (news,) = worker.beat(lease)["leases"]
    assert (news["state"], news["pause"]) == ("held", True)
    answer = lease.send("checkpoint", {"key": "charge", "output": 1})
    assert (answer["answer"], answer["status"]) == ("paused", "paused")
    kit.run(kit.app.resume, run)
    assert worker.one().steps["charge"]["output"] == 1
