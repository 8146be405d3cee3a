"""Parts of an item: children, events, messages, log rows, gates, chains, budgets and plans, on each store."""

from __future__ import annotations

import hashlib
from uuid import UUID, uuid4

import pytest

import holdfast as hf
from holdfast.records import Definition, PlanStep, RunFilter, Scope
from tests.http.kit import Kit
from tests.http.work.kit import Worker, get, problem, start, trail

CHILD = {
    "key": "shop.ship",
    "kind": "child",
    "status": "waiting",
    "child": {"type": "shop.ship.v1", "params": 5},
}


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3", "TEN-6")
def test_a_child_is_called_once_and_wakes_its_parent(kit, worker):
    run = start(kit)
    parent = worker.one()
    item = parent.item("park", CHILD, known=0)
    first, second = worker.batch(item)[0], worker.batch(item)[0]
    assert first == second
    assert first["status"] == "waiting"
    child_id = first["children"]["shop.ship"]
    child = Worker(kit, types=["shop.ship.v1"]).one()
    assert (child.run, child["params"], child["parent"]) == (child_id, 5, run)
    assert child.send("complete", result={"by": "dhl"})["status"] == "succeeded"
    parent = worker.one()  # delivered at once: nobody ran a keeper
    step = parent.steps["shop.ship"]
    assert step["output"] == {"run": child_id, "status": "succeeded", "result": {"by": "dhl"}}
    assert (step["status"], step["child"], parent["woken_by"]) == ("succeeded", child_id, ["shop.ship"])


@pytest.mark.spec("HTTP-3")
def test_a_child_that_fails(kit, worker):
    start(kit)
    worker.one().send("park", CHILD, known=0)
    child = Worker(kit, types=["shop.ship.v1"]).one()
    child.send("fail", error={"kind": "fatal", "message": "no address"})
    step = worker.one().steps["shop.ship"]
    assert (step["status"], step["error"]["kind"]) == ("failed", "child_failed")
    assert step["output"]["status"] == "failed"
    assert step["output"]["error"]["message"] == "no address"


@pytest.mark.spec("HTTP-3", "TEN-6")
def test_a_child_that_is_only_started(kit, worker):
    kit.run(kit.app.store.publish, [Definition(type="shop.ship.v1"), Definition(type="shop.ship.v3")])
    run = start(kit)
    lease = worker.one()
    options = {"type": "shop.ship", "params": 1, "priority": 7, "delay_ms": 60_000, "labels": {"a": "b"},
               "limit_key": "k", "max_attempts": 9, "budget": 2.5, "timeout_ms": 1000}  # fmt: skip
    item = lease.item("checkpoint", {"key": "shop.ship", "kind": "child", "child": options})
    first, second = worker.batch(item)[0], worker.batch(item)[0]
    assert first == second
    id_ = first["children"]["shop.ship"]
    child = get(kit, id_)
    assert (child.type, child.params, child.priority, child.status) == ("shop.ship.v3", 1, 7, "pending")
    assert (child.labels, child.limit_key, child.max_attempts, child.budget) == ({"a": "b"}, "k", 9, 2.5)
    assert (str(child.parent), child.timeout_seconds) == (run, 1.0)
    lease.send("release")
    assert worker.one().steps["shop.ship"]["output"] == {"run": id_, "status": "started"}
    assert len(kit.run(kit.app.list, RunFilter(parent=UUID(run)))) == 1


@pytest.mark.spec("TEN-6")
def test_the_id_of_a_child_cannot_be_given(kit, worker):
    run = start(kit)
    child = {"type": "shop.ship.v1", "id": str(uuid4())}
    answer = worker.one().send("checkpoint", {"key": "c", "kind": "child", "child": child})
    assert problem(answer) == (422, "bad-value")
    assert trail(kit, run) == ["created", "leased"]


@pytest.mark.spec("HTTP-3")
def test_a_child_of_no_known_type_refuses_its_item_alone(kit, worker):
    start(kit), start(kit)
    one, two = worker.claim()
    wrong = {"key": "x", "kind": "child", "child": {"type": "no.such"}}
    answers = worker.batch(one.item("checkpoint", wrong), two.item("complete"))
    assert problem(answers[0]) == (422, "workflow-not-found")
    assert answers[1]["status"] == "succeeded"
    (answer,) = worker.batch({**one.item("fail", error={"kind": "usage"}), "seq": 1})
    assert answer["status"] == "failed"


@pytest.mark.spec("HTTP-3", "TEN-6")
def test_an_event_wakes_others_of_the_tenant_at_once(kit, worker):
    waits, emits = start(kit, 1), start(kit, 2)
    first, second = worker.claim()
    assert (first.run, second.run) == (waits, emits)
    first.send("park", {"key": "event:go", "kind": "event", "status": "waiting", "topic": "go"}, known=0)
    event = {"name": "tell:emit1", "topic": "go", "payload": {"n": 1}}
    step = {"key": "tell"}
    second.send("checkpoint", step, events=[event], logs=[{"message": "told", "level": "info", "log_no": 1}])
    woken = worker.one()
    assert (woken.run, woken.steps["event:go"]["output"]["payload"]) == (waits, {"n": 1})
    assert woken.steps["event:go"]["output"]["id"].startswith(f"{emits}:")
    assert "log" in trail(kit, emits)
    second.send("release")
    again = worker.one()
    assert again["logs"] == 1


@pytest.mark.spec("TEN-6")
@pytest.mark.parametrize("fields", [
    {"events": [{"name": "e", "topic": "t", "tenant": "other"}]},
    {"steps": [{"key": "c", "kind": "child", "child": {"type": "a.b.v1", "tenant": "other"}}]},
])  # fmt: skip
def test_another_tenant_is_refused(kit, worker, fields):
    run = start(kit)
    lease = worker.one()
    (answer,) = worker.batch({**lease.item("complete"), **fields})
    assert problem(answer) == (422, "bad-value")
    assert "only for its own tenant" in answer["problem"]["detail"]
    assert get(kit, run).status == "leased"
    assert trail(kit, run) == ["created", "leased"]


@pytest.mark.spec("HTTP-3")
def test_messages_have_ids_that_a_repeat_keeps(kit, worker):
    run = start(kit)
    created = kit.run(kit.app.get, run).created_at
    lease = worker.one()
    messages = [
        {"sink": "mail", "payload": {"to": "a"}, "step": "tell", "key": "k"},
        {"sink": "mail", "step": "tell"},
    ]
    item = lease.item("checkpoint", {"key": "tell"}, messages=messages)
    worker.batch(item), worker.batch(item)
    found = kit.run(kit.app.outbox)
    micros = round(created.timestamp() * 1_000_000)
    ids = ["msg_" + hashlib.sha256(f"{run}:{micros}:{n}:tell".encode()).hexdigest()[:32] for n in (1, 2)]
    assert {one.id for one in found} == set(ids)
    assert {one.key for one in found} == {"k", None}


@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize("decide", ["approve", "reject"])
def test_a_gate(kit, worker, decide):
    run = start(kit)
    ask = {"ask": "Pay?", "data": {"amount": 10}}
    gate = {"key": "manager", "kind": "approval", "status": "waiting", "ask": ask}
    assert worker.one().send("park", gate, known=0)["status"] == "waiting"
    (open_,) = kit.run(kit.app.approvals)
    assert (open_.ask, open_.data) == ("Pay?", {"amount": 10})
    assert open_.digest == hashlib.sha256(b'approval\n{"ask":"Pay?","data":{"amount":10}}').hexdigest()
    kit.run(getattr(kit.app, decide), run, "manager", by="ann", comment="fine", digest=open_.digest)
    output = worker.one().steps["manager"]["output"]
    assert (output["approved"], output["by"], output["comment"]) == (decide == "approve", "ann", "fine")


@pytest.mark.spec("HTTP-3")
def test_a_chain_goes_on_as_the_next_run(kit, worker):
    run = start(kit, 1, priority=5, labels={"a": "b"}, limit_key="k", ttl=3600)
    lease = worker.one()
    item = lease.item("complete", continue_as={"params": {"n": 9007199254740993}})
    first, second = worker.batch(item)[0], worker.batch(item)[0]
    assert first == second
    assert first["status"] == "succeeded"
    found = kit.run(kit.app.store.get, UUID(run), "default")
    assert found.result == {"continued_as": first["next"]}
    following = worker.one()
    assert (following.run, following["params"]) == (first["next"], {"n": 9007199254740993})
    assert following["labels"] == {"a": "b", "continued_from": run}
    record = get(kit, first["next"])
    assert (record.priority, record.limit_key, record.ttl_seconds) == (5, "k", 3600)
    assert len(kit.run(kit.app.list, RunFilter())) == 2


@pytest.mark.spec("HTTP-3")
def test_a_budget_pauses_the_run(kit, worker):
    run = start(kit, budget=1.0)
    lease = worker.one()
    assert (lease["cost"], lease["budget"], lease["left"]) == (0, 1.0, None)
    answer = lease.send("checkpoint", {"key": "a", "cost": 0.4})
    assert answer["status"] == "leased"
    answer = lease.send("release", before="b", cost_max=0.7)
    assert answer["status"] == "paused"
    assert get(kit, run).cost == 0.4


@pytest.mark.spec("HTTP-3")
def test_a_shared_budget_says_what_is_left(kit, worker):
    kit.run(kit.app.store.publish, [Definition(type="shop.order.v1", budget=3_000_000, covers_children=True)])
    start(kit, budget=3.0)
    lease = worker.one()
    assert lease["left"] == 3.0
    answer = lease.send("checkpoint", {"key": "a", "cost": 0.5}, shares=True)
    assert answer["left"] == 2.5


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_a_plan(kit, worker):
    steps = (PlanStep(name="PAY"), PlanStep(name="PACK"), PlanStep(name="SHIP"))
    kit.run(kit.app.store.publish, [Definition(type="shop.order.v1", kind="plan", steps=steps)])
    run = start(kit, 1)
    lease = worker.one()
    assert (lease["kind"], list(lease.steps)) == ("plan", ["PAY", "PACK", "SHIP"])
    answer = lease.send("advance", {"key": "PAY", "output": 1}, result=1, in_place=True)
    assert (answer["status"], [one["key"] for one in answer["settled"]]) == ("leased", ["PACK"])
    answer = lease.send("park", {"key": "PACK", "status": "waiting", "topic": "packed"})
    assert answer["status"] == "waiting"
    kit.run(kit.app.emit, "packed", "yes", id="e1")
    lease = worker.one()
    assert lease.steps["PACK"]["wake"]["event"]["payload"] == "yes"
    lease.send("advance", {"key": "PACK"}, in_place=True)
    assert lease.send("advance", {"key": "SHIP", "output": "sent"}, result="sent")["status"] == "succeeded"
    assert get(kit, run).result == "sent"


@pytest.mark.spec("HTTP-3")
def test_a_plan_that_was_published_after_the_start(kit, worker):
    run = start(kit, 1)
    lease = worker.one()
    assert lease.send("begin", plan=[{"name": "PAY"}])["status"] == "pending"
    lease = worker.one()
    assert list(lease.steps) == ["PAY"]
    assert lease.send("advance", {"key": "PAY", "output": 2}, result=2)["status"] == "succeeded"
    assert get(kit, run).kind == "plan"


@pytest.mark.spec("HTTP-3")
def test_a_wait_that_is_settled_while_others_work(kit, worker):
    start(kit)
    lease = worker.one()
    wait = {"key": "event:go", "kind": "event", "status": "waiting", "topic": "go"}
    answer = lease.send("checkpoint", {"key": "a"}, wait, known=0)
    known = answer["known"]
    kit.run(kit.app.emit, "go", 1, id="e1")
    (news,) = worker.beat({**lease.named, "known": known})["leases"]
    assert [one["key"] for one in news["settled"]] == ["event:go"]
    answer = lease.send("checkpoint", {"key": "b"}, known=known)
    assert [one["key"] for one in answer["settled"]] == ["event:go"]
    gave_up = {"key": "event:go", "kind": "event", "status": "cancelled", "topic": "go"}
    assert lease.send("checkpoint", gave_up)["answer"] == "applied"


@pytest.mark.spec("HTTP-3")
def test_the_same_run_is_finished_by_another_language():
    """The record that a worker writes over the protocol is the one that the engine reads, and vice versa."""
    app = hf.App("memory://")

    @app.workflow("shop.order.v1")
    async def order(ctx, order):
        receipt = await ctx.step("charge", lambda: 1)
        event = await ctx.await_event("paid")
        decision = await ctx.approval("boss")
        return [receipt, event.payload, decision.approved, ctx.now().year]

    with Kit(app) as kit:
        worker, run = Worker(kit, key=kit.key(Scope.WORK)), start(kit, {"id": 1})
        lease = worker.one()
        lease.send("checkpoint", {"key": "charge", "output": {"big": 9007199254740993}})
        wait = {"key": "event:paid", "kind": "event", "status": "waiting", "topic": "paid"}
        lease.send("park", wait, {"key": "now", "kind": "now", "output": 1_000_000}, known=1)
        kit.run(kit.app.emit, "paid", "card", id="e1")
        kit.work(run)
        assert get(kit, run).status == "waiting"
        kit.run(kit.app.approve, run, "boss")
        lease = worker.one()
        assert {key: one["kind"] for key, one in lease.steps.items()} == {
            "charge": "task", "event:paid": "event", "now": "now", "boss": "approval",
        }  # fmt: skip
        lease.send("release")
        kit.work(run)
        assert get(kit, run).result == [{"big": 9007199254740993}, "card", True, 1970]
