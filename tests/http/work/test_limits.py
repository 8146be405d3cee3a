"""Limits of the worker protocol that no store decides: numbers, heartbeats, registration, give-backs."""

from __future__ import annotations

import asyncio
import json
import threading
from uuid import uuid4

import pytest

from holdfast.errors import Unavailable
from holdfast.http import limits, parsing
from holdfast.http.work import commits, presences, work
from holdfast.http.work.numbers import ITEMS_OF_LEASE, LEASES_MAX, Numbers
from holdfast.lifecycle import Status
from holdfast.records import Answer, Presence, Scope, Verdict
from holdfast.wire.requests import LACKING_MAX, TYPES_MAX, BatchItem
from tests.http.work.kit import Worker, get, problem, server, start


@pytest.fixture
def on_memory():
    """A server on memory."""
    with server() as kit:
        yield kit


@pytest.fixture
def worker(on_memory):
    return Worker(on_memory)


class TestNumbers:
    """Another item under the number of an applied one."""

    @pytest.mark.spec("LEASE-14", "HTTP-3")
    def test_it_is_refused_and_changes_nothing(self, on_memory, worker):
        run = start(on_memory)
        lease = worker.one()
        first = lease.item("checkpoint", {"key": "a", "output": 1})
        worker.batch(first)
        others = [
            {"op": "checkpoint", "steps": [{"key": "b", "output": 1}]},
            {"op": "checkpoint", "steps": [{"key": "a", "output": 2}]},
            {"op": "complete", "steps": [], "result": 1},
            {"op": "release", "steps": []},
        ]
        for other in others:
            (answer,) = worker.batch({**first, **other})
            assert problem(answer) == (409, "conflict")
        (again,) = worker.batch({**first, "started_ms": 1, "known": 0})
        assert (again["answer"], again["status"]) == ("applied", "leased")
        steps = on_memory.run(on_memory.app.steps, run)
        assert [(one.key, one.output) for one in steps] == [("a", "1")]

    def test_a_number_whose_item_was_refused_is_free(self, on_memory, worker):
        start(on_memory)
        lease = worker.one()
        bad = lease.item("checkpoint", {"key": "a", "status": "ready", "output": 1})
        assert worker.batch(bad)[0]["answer"] == "refused"
        (answer,) = worker.batch({**lease.named, "op": "complete", "seq": 1, "result": 1})
        assert answer["status"] == "succeeded"

    def test_what_is_remembered_is_bounded(self):
        numbers, run = Numbers(), uuid4()
        items = [
            BatchItem(run=run, fence=fence, token="", op="release", seq=seq)
            for fence in range(LEASES_MAX + 5)
            for seq in ((1,) if fence else range(1, ITEMS_OF_LEASE + 3))
        ]
        for item in items:
            numbers.applied(item)
        assert len(numbers._leases) == LEASES_MAX
        assert max(map(len, numbers._leases.values())) <= ITEMS_OF_LEASE


@pytest.mark.spec("LEASE-8")
def test_a_large_heartbeat_does_not_wait_behind_large_batches(on_memory, worker, monkeypatch):
    """Batches fill the threads that parse large bodies; the heartbeat has its own."""
    start(on_memory)
    lease = worker.one()
    parsed, held, entered = parsing.parsed_body, threading.Event(), threading.Semaphore(0)

    def slow(text, wanted):
        if wanted.__name__ == "RawBatch":
            entered.release()
            assert held.wait(20)
        return parsed(text, wanted)

    monkeypatch.setattr(parsing, "parsed_body", slow)
    big = {"op": "checkpoint", **lease.named, "seq": 1, "steps": [{"key": "a", "output": "x" * 100_000}]}
    sent = [threading.Thread(target=worker.batch, args=(big,)) for _ in range(parsing.PARSED_AT_ONCE + 1)]
    for one in sent:
        one.start()
    try:
        for _ in range(parsing.PARSED_AT_ONCE):
            assert entered.acquire(timeout=10)
        many = [lease.named] * (2 * parsing.LARGE_BYTES // len(str(lease.named)))
        assert worker.beat(*many)["leases"][0]["state"] == "held"
    finally:
        held.set()
        for one in sent:
            one.join()


@pytest.mark.parametrize(
    "lacking",
    [
        {f"shop.p{n}.v1": ["A"] for n in range(TYPES_MAX + 1)},
        {"shop.plan.v1": [f"task {n}" for n in range(LACKING_MAX + 1)]},
        {"shop.plan.v1": ["x" * 10_000]},
        {"x" * 10_000: ["A"]},
    ],
    ids=["plans", "tasks", "long task", "long plan"],
)
def test_what_a_worker_lacks_is_bounded(worker, lacking):
    body = {"worker": "w", "language": "go", "library": "l", "runtime": "go", "types": [], "slots": 1}
    assert worker.ask("/workers/register", {**body, "lacking": lacking}, 422)["code"] == "bad-value"


class TestPresences:
    """Names of workers cost nothing, so a tenant has a bound on them."""

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        monkeypatch.setattr(presences, "TENANT_BYTES", 2 * presences.WORKER_BYTES)

    def refused(self, worker, name, **fields):
        body = {"worker": name, "language": "go", "library": "l", "runtime": "go", "types": [], "slots": 1}
        return worker.ask("/workers/register", {**body, **fields}, 429)["code"]

    def names(self, kit):
        return [one.worker for one in kit.run(kit.app.workers)]

    @pytest.mark.spec("HTTP-3", "TEN-3")
    def test_a_tenant_has_so_many_workers_and_no_other_tenant_less(self, on_memory, worker):
        worker.register(worker="a")
        worker.register(worker="b")
        worker.register(worker="a")
        assert self.refused(worker, "c") == "streams-limit"
        Worker(on_memory, tenant="other").register(worker="c")
        worker.ask("/workers/leave", {"worker": "b"}, 204)
        worker.register(worker="d")
        assert self.names(on_memory) == ["a", "c@other", "d"]

    def test_long_names_count_more(self, on_memory, worker):
        types = [f"shop.{'x' * 100}{n}.v1" for n in range(50)]
        worker.register(worker="a")
        assert self.refused(worker, "b", types=types) == "streams-limit"

    def test_a_worker_that_is_refused_stays_counted(self, on_memory, worker):
        """The store still has it: otherwise the bound could be passed by a refusal for each new worker."""
        worker.register(worker="a")
        worker.register(worker="b")
        assert self.refused(worker, "a", types=[f"shop.{'x' * 100}{n}.v1" for n in range(50)])
        assert self.refused(worker, "c") == "streams-limit"
        assert self.names(on_memory) == ["a", "b"]

    def test_a_worker_that_registers_twice_at_once_is_counted_once(self, on_memory, worker, monkeypatch):
        known, absent = on_memory.api.work.presences, on_memory.api.store.absent
        one = Presence(worker="c", types=())

        async def slow(gone):
            monkeypatch.setattr(on_memory.api.store, "absent", absent)
            await known.present("default", one)  # the second registration comes in between
            await absent(gone)

        for name in ("a", "b"):
            worker.register(worker=name)
        monkeypatch.setattr(presences, "LIVE_SECONDS", -1.0)
        monkeypatch.setattr(on_memory.api.store, "absent", slow)
        worker.register(worker="c")
        monkeypatch.undo()
        monkeypatch.setattr(presences, "TENANT_BYTES", 2 * presences.WORKER_BYTES)
        worker.ask("/workers/leave", {"worker": "c"}, 204)
        worker.register(worker="d")
        assert self.names(on_memory) == ["b", "d"]

    def test_a_worker_that_was_not_seen_for_long_makes_room(self, on_memory, worker, monkeypatch):
        for name in ("a", "b"):
            worker.register(worker=name)
        monkeypatch.setattr(presences, "LIVE_SECONDS", -1.0)
        worker.register(worker="c")
        assert self.names(on_memory) == ["b", "c"]


@pytest.mark.spec("LEASE-17")
def test_a_run_is_given_back_although_the_store_did_not_answer_at_first(on_memory, worker, monkeypatch):
    monkeypatch.setattr(work, "END_SECONDS", (0.0, 0.0))
    run, store = start(on_memory), on_memory.api.store
    commit, calls = store.commit, []

    async def fails_twice(items):
        calls.append(items)
        if len(calls) <= 2:
            raise Unavailable("no answer")
        return await commit(items)

    async def claimed_and_left():
        from holdfast.records import Ask

        ask = Ask(worker="gone", types=("shop.order.v1",), limit=1, lease_seconds=30.0, runtime="go")
        claims = await store.claim(ask)
        monkeypatch.setattr(store, "commit", fails_twice)
        await asyncio.wait_for(on_memory.api.work._give_back(ask, claims), 10)

    on_memory.run(claimed_and_left)
    assert len(calls) == 3
    assert get(on_memory, run).status == "pending"


@pytest.mark.spec("LEASE-8", "TEN-3")
def test_a_key_with_a_rate_keeps_its_leases_however_much_it_writes(on_memory):
    start(on_memory)
    slow = Worker(on_memory, key=on_memory.key(Scope.WORK, rate=1.0))
    lease = slow.one()
    slow.ask("/leases/batch", {"items": []}, 429)
    assert slow.beat(lease)["leases"][0]["renewed"]
    slow.ask("/leases/heartbeat", {"worker": slow.name, "leases": []}, 429)  # heartbeats have a rate, too


def test_runs_that_cannot_be_read_are_given_back_at_once_and_not_in_turn(on_memory, worker, monkeypatch):
    """The leases of the other runs of the claim go on meanwhile."""
    broken = [start(on_memory) for _ in range(3)]
    readable = start(on_memory)
    entered, all_entered = [], asyncio.Event()

    async def ended(_work, claims, _move):
        entered.extend(claims)
        if len(entered) == len(broken):
            all_entered.set()
        await asyncio.wait_for(all_entered.wait(), 10)

    monkeypatch.setattr(work.Work, "_end", ended)
    monkeypatch.setattr(work, "shut", lambda claim: "no key" if str(claim.id) in broken else "")
    assert [one.run for one in worker.claim()] == [readable]
    assert sorted(str(one.id) for one in entered) == sorted(broken)


def test_busy_items_are_tried_again_a_few_at_once(on_memory, worker, monkeypatch):
    for _ in range(3 * commits.BUSY_AT_ONCE):
        start(on_memory)
    leases, store = worker.claim(slots=100), on_memory.api.store
    commit, at_once, most = store.commit, [0], [0]

    async def busy_at_first(items):
        if len(items) > 1:
            return [Verdict(answer=Answer.BUSY, status=Status.LEASED)] * len(items)
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        await asyncio.sleep(0.001)
        at_once[0] -= 1
        return await commit(items)

    monkeypatch.setattr(store, "commit", busy_at_first)
    answers = worker.batch(*[one.item("complete", result=1) for one in leases])
    assert {one["status"] for one in answers} == {"succeeded"}
    assert most[0] == commits.BUSY_AT_ONCE


@pytest.mark.spec("HTTP-4", "TEN-3")
def test_large_bodies_have_a_bound_for_each_tenant_and_none_stops_a_heartbeat(on_memory, worker, monkeypatch):
    """Slow connections with large bodies must not take the memory of the server."""
    api, other = on_memory.api, Worker(on_memory, tenant="other")
    monkeypatch.setattr(api, "large_bodies", limits.LargeBodies(5 * limits.LARGE_BYTES))
    start(on_memory)
    lease = worker.one()
    entered, held, commit = threading.Event(), threading.Event(), api.store.commit

    async def slow(items):
        entered.set()
        await asyncio.to_thread(held.wait, 20)
        return await commit(items)

    monkeypatch.setattr(api.store, "commit", slow)
    large = "x" * (2 * limits.LARGE_BYTES)
    first = threading.Thread(target=lease.send, args=("checkpoint", {"key": "a", "output": large}))
    first.start()
    try:
        assert entered.wait(10)
        body = {"items": [{"op": large}]}
        refusal = worker.ask("/leases/batch", body, 503)
        assert (refusal["code"], refusal["retryable"]) == ("server-full", True)
        assert "this tenant has 131" in refusal["detail"]
        assert other.ask("/leases/batch", body)["items"][0]["problem"]["code"] == "bad-value"
        assert worker.beat({**lease.named, "note": large})["leases"][0]["state"] == "held"
    finally:
        held.set()
        first.join()
    assert worker.ask("/leases/batch", body)["items"][0]["problem"]["code"] == "bad-value"


@pytest.mark.spec("HTTP-4")
def test_a_body_that_tells_no_size_counts_what_it_has_once_it_is_read(on_memory, worker, monkeypatch):
    """Otherwise eight long polls with short bodies would be all that a tenant could have."""
    moved, bodies, counted = on_memory.api.work.moved, on_memory.api.large_bodies, []
    states = moved.states

    async def seen(*args):
        counted.append(bodies.bytes)
        return await states(*args)

    monkeypatch.setattr(moved, "states", seen)
    start(on_memory)
    text = json.dumps({"leases": [worker.one().named]}).encode()
    headers = {"content-type": "application/json"}
    answer = on_memory.ask("POST", "/leases/states", worker.key, content=iter([text]), headers=headers)
    assert answer.status_code == 200
    assert (counted, bodies.bytes) == ([len(text)], 0)
