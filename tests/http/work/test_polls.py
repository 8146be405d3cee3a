"""Long polls, heartbeats and what happens when an answer, a worker or a server is gone, on each store."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast as hf
from holdfast.engine import wake_up
from holdfast.http.limits import Streams
from holdfast.http.work import claims, moved
from holdfast.http.work.claims import Claims
from holdfast.http.work.keeping import Keeping
from holdfast.records import ANY, Ask
from holdfast.stores.memory import MemoryStore
from holdfast.world import RealWorld
from tests.http.real import served
from tests.http.work.kit import TYPE, Lease, Worker, get, server, start, trail

SOON = 5.0  # seconds, on a busy machine; without a hint it would take longer (`no_polls`)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def no_polls(monkeypatch):
    """Long polls wait for hints, and look by themselves only after a long time."""
    monkeypatch.setattr(wake_up, "POLL_MIN_SECONDS", 60.0)
    monkeypatch.setattr(claims, "poll_of", lambda _: 60.0)
    monkeypatch.setattr(moved, "LOOK_SECONDS", 60.0)
    monkeypatch.setattr(moved, "POLL_MAX_SECONDS", 60.0)


def until(true, seconds=10.0):
    """Wait until something is true."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


def waiting(kit):
    """The number of claims that wait."""
    return sum(len(one.waiters) for one in kit.api.work.claims._groups.values())


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
@pytest.mark.usefixtures("no_polls")
def test_a_start_wakes_a_claim_that_waits(kit, worker, pool):
    asked = time.monotonic()
    polled = pool.submit(worker.claimed, wait_ms=20_000)
    until(lambda: waiting(kit) == 1)
    time.sleep(0.3)
    run = start(kit, 7)
    began = time.monotonic()
    answer = polled.result(20)
    assert time.monotonic() - began < SOON
    # The origin of lease time is that much later than the request: neither 0 nor after the answer.
    assert 300 <= answer["waited_ms"] <= (time.monotonic() - asked) * 1000
    assert ([one["run"] for one in answer["leases"]], answer["drain"]) == ([run], False)
    until(lambda: not kit.api.work.claims._groups)
    assert kit.api.work.claims._unlisten is None


@pytest.mark.spec("HTTP-3")
def test_a_run_that_becomes_due_wakes_a_claim(kit, worker):
    began = time.monotonic()
    start(kit, delay=0.3)
    assert worker.one()
    assert 0.3 <= time.monotonic() - began < 0.3 + SOON


@pytest.mark.spec("HTTP-3")
def test_a_claim_ends_after_its_time(worker):
    began = time.monotonic()
    answer = worker.claimed(wait_ms=200)
    assert (answer["leases"], answer["drain"]) == ([], False)
    assert 0.2 <= time.monotonic() - began < SOON
    assert worker.claimed(slots=0, wait_ms=20_000)["leases"] == []
    assert worker.claimed(types=[], wait_ms=20_000)["leases"] == []


@pytest.mark.spec("HTTP-3")
def test_workers_that_wait_share_what_comes(kit, worker, pool):
    workers = [worker, Worker(kit), Worker(kit, types=[TYPE, "bank.pay.v1"])]
    polled = [pool.submit(one.claim, slots=1, wait_ms=20_000) for one in workers]
    until(lambda: waiting(kit) == 3)
    runs = {start(kit, n) for n in range(3)}
    found = [lease.run for one in polled for lease in one.result(20)]
    assert (len(found), {*found}) == (3, runs)


@pytest.mark.spec("HTTP-3")
def test_a_server_that_stops_answers_at_once(kit, worker, pool):
    start(kit, delay=3600)
    run = start(kit)
    (lease,) = worker.claim()
    claim = pool.submit(worker.claimed, wait_ms=20_000)
    states = pool.submit(worker.ask, "/leases/states", {"leases": [lease.named], "wait_ms": 20_000})
    until(lambda: waiting(kit) == 1 and kit.api.work.moved._waiting)
    began = time.monotonic()
    kit.run(kit.api.stop)
    assert {**claim.result(5), "waited_ms": 0} == {"leases": [], "drain": True, "waited_ms": 0}
    assert states.result(5) == {"leases": [{"run": run, "state": "held", "pause": False}], "drain": True}
    assert time.monotonic() - began < SOON
    start(kit)
    assert worker.claimed(wait_ms=20_000) == {"leases": [], "drain": True, "waited_ms": 0}
    beat = worker.beat(lease)
    assert (beat["leases"][0]["state"], beat["drain"]) == ("held", True)
    assert lease.send("complete")["status"] == "succeeded", "what is held may end"


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_a_lease_that_no_heartbeat_keeps_is_taken_over(kit):
    """No library worker is there: the server itself finds that the lease has expired."""
    run = start(kit)
    dead = Worker(kit, lease_ms=500).one()
    lease = Worker(kit).one()
    assert (lease.run, lease["crashes"], lease.fence > dead.fence) == (run, 1, True)
    answer = dead.send("checkpoint", {"key": "late"})
    assert answer["problem"]["code"] == "lease-lost"
    assert "lease_expired" in trail(kit, run)


@pytest.mark.spec("HTTP-3")
def test_a_heartbeat_keeps_the_lease(kit):
    run = start(kit)
    worker = Worker(kit, lease_ms=800)
    lease = worker.one()
    for number in range(4):
        time.sleep(0.3)
        named = {
            **lease.named,
            "started_ms": 1,
            "heartbeat": number == 0,
            "progress": {"done": number, "total": 4},
        }
        (news,) = worker.beat(named, lease_ms=800)["leases"]
        assert (news["state"], news["renewed"], news["pause"]) == ("held", True, False)
    assert lease.send("checkpoint", {"key": "a"}, lease_ms=800)["answer"] == "applied"
    found = get(kit, run)
    assert (found.progress["done"], found.crashes) == (3, 0)
    assert {"started", "heartbeat"} <= {*trail(kit, run)}
    bad = {**lease.named, "progress": {"done": "x"}}
    assert worker.beat(bad, lease_ms=800)["leases"][0]["renewed"], "a wrong progress loses no lease"


@pytest.mark.every_store
@pytest.mark.spec("HTTP-3")
def test_a_stray_is_given_back(kit, worker):
    run = start(kit)
    assert worker.beat()["strays"] == []
    worker.claimed()  # the answer is lost
    (stray,) = worker.beat()["strays"]
    assert stray["run"] == run
    lease = Lease(worker, stray)
    assert lease.send("release")["status"] == "pending"
    again = worker.one()
    assert (again["attempt"], again["crashes"]) == (1, 0)
    assert worker.beat(again)["strays"] == []


@pytest.mark.spec("HTTP-3")
@pytest.mark.usefixtures("no_polls")
def test_a_cancel_reaches_a_worker_that_asks_for_states(kit, worker, pool):
    run = start(kit)
    lease = worker.one()
    asked = {"leases": [lease.named]}
    assert worker.ask("/leases/states", asked)["leases"] == [{"run": run, "state": "held", "pause": False}]
    polled = pool.submit(worker.ask, "/leases/states", {**asked, "wait_ms": 20_000})
    until(lambda: kit.api.work.moved._waiting)
    time.sleep(0.3)
    kit.run(kit.app.pause, run)
    began = time.monotonic()
    assert polled.result(20)["leases"] == [{"run": run, "state": "held", "pause": True}]
    assert time.monotonic() - began < SOON
    known = {"leases": [{**lease.named, "pause": True}], "wait_ms": 20_000}
    polled = pool.submit(worker.ask, "/leases/states", known)
    until(lambda: kit.api.work.moved._waiting)
    kit.run(kit.app.cancel, run)
    assert polled.result(20)["leases"][0]["state"] == "cancelled"
    assert kit.api.work.moved._unlisten is None


@pytest.mark.spec("HTTP-3")
def test_people_see_the_steps_that_run(kit, worker):
    run = start(kit)
    lease = worker.one()
    steps = [{"step": "charge", "attempt": 2, "started_ms": -5000}]
    body = {"worker": worker.name, "runs": [{**lease.named, "started_ms": 0.5, "steps": steps}]}
    assert worker.ask("/leases/running", body)["written"] == [True]
    (shown,) = get(kit, run).running
    assert (shown.step, shown.attempt) == ("charge", 2)
    assert "started" in trail(kit, run)


@pytest.mark.spec("TEN-1")
def test_a_revoked_key_ends_its_long_poll(pool):
    with server() as kit:
        worker = Worker(kit)
        polled = pool.submit(
            kit.ask, "POST", "/leases/claim", worker.key,
            json={"worker": "w", "runtime": "go", "types": [TYPE], "slots": 1, "wait_ms": 20_000},
        )  # fmt: skip
        until(lambda: waiting(kit) == 1)
        kit.run(kit.app.store.revoke_key, worker.key.split("_")[1], ANY)
        assert polled.result(10).status_code == 401
        until(lambda: waiting(kit) == 0)


@pytest.mark.spec("TEN-3")
def test_long_polls_are_bounded(pool):
    with server(streams=Streams(most=2)) as kit:
        worker = Worker(kit)
        polled = [pool.submit(worker.claimed, slots=1, wait_ms=20_000) for _ in range(2)]
        until(lambda: waiting(kit) == 2)
        body = {"worker": "w", "runtime": "go", "types": [TYPE], "slots": 1, "wait_ms": 1000}
        refused = worker.ask("/leases/claim", body, 429)
        assert refused["code"] == "streams-limit"
        assert worker.claimed()["leases"] == [], "a claim that does not wait is no long poll"
        start(kit), start(kit)
        assert sum(len(one.result(20)["leases"]) for one in polled) == 2


@pytest.mark.spec("HTTP-3")
def test_a_worker_that_has_left_gets_nothing():
    """A real connection that is closed while its claim waits."""
    app = hf.App("memory://")
    with served(app, open=True) as (port, call):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        body = {"worker": "w", "runtime": "go", "types": [TYPE], "slots": 1, "wait_ms": 20_000}
        connection.request("POST", "/leases/claim", json.dumps(body), {"content-type": "application/json"})
        time.sleep(0.2)
        connection.close()
        time.sleep(0.2)
        run = call(app.start, TYPE)
        time.sleep(0.2)
        assert call(app.get, run.id).status == "pending"


class SlowStore(MemoryStore):
    """A store whose claims are answered late."""

    def __init__(self):
        super().__init__()
        self.claimed, self.go_on = asyncio.Event(), asyncio.Event()

    async def claim(self, ask):
        found = await super().claim(ask)
        if found:
            self.claimed.set()
            await self.go_on.wait()
        return found


@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize("waits", [False, True])
def test_runs_of_a_claim_whose_worker_leaves_in_that_moment_are_given_back(waits):
    async def scene():
        store, given = SlowStore(), []
        app = hf.App(store)
        await store.open()

        async def give_back(ask, claims):
            given.extend(claims)

        waiting = Claims(store, RealWorld(), give_back)
        ask = Ask(worker="w", types=(TYPE,), limit=1)
        if not waits:
            await app.start(TYPE)
        task = asyncio.ensure_future(waiting.claim(ask, 10.0))
        await asyncio.sleep(0.05)
        if waits:
            await app.start(TYPE)
        await store.claimed.wait()
        task.cancel()
        await asyncio.sleep(0)
        store.go_on.set()
        await asyncio.sleep(0.05)
        assert task.cancelled()
        assert len(given) == 1
        await waiting.close()

    asyncio.run(scene())


@pytest.mark.spec("HTTP-3")
def test_a_claim_that_is_granted_when_its_time_ends_says_how_long_it_has_waited(monkeypatch):
    """Else its worker would take the lease for older than it is: by the whole wait."""

    async def scene():
        waiting, loop, world = (
            Claims(MemoryStore(), RealWorld(), None),
            asyncio.get_running_loop(),
            RealWorld(),
        )

        def enter(waiter):
            # The loop is busy when the time ends: then it finds the grant and the end in the same turn.
            loop.call_later(0.19, lambda: claims._give(waiter, claims.Found(["run"], world.monotonic())))
            loop.call_later(0.18, time.sleep, 0.1)

        monkeypatch.setattr(waiting, "_enter", enter)
        asked_at = world.monotonic()
        found = await waiting._waited(Ask(worker="w", types=(TYPE,), limit=1), 0.2)
        assert found.claims == ["run"]
        assert found.asked_at - asked_at > 0.15

    asyncio.run(scene())


@pytest.mark.spec("HTTP-3")
def test_many_requests_share_commits(kit, pool):
    worker = Worker(kit)
    for number in range(40):
        start(kit, number)
    leases = worker.claim(slots=40)
    gate = threading.Barrier(4)

    def send(part):
        gate.wait()
        for lease in part:
            lease.send("checkpoint", {"key": "a"})
            lease.send("complete", result=lease["params"])

    list(pool.map(send, [leases[at::4] for at in range(4)]))
    assert all(get(kit, one.run).result == one["params"] for one in leases)


@pytest.mark.spec("HTTP-3")
def test_the_server_does_the_chores_from_the_first_claim_on(kit, worker):
    """A run that was parked before the server began is woken, although no lease was given since."""
    start(kit)
    wait = {"key": "sleep", "kind": "sleep", "status": "waiting", "delay_ms": 600}
    worker.one().send("park", wait, known=0)
    kit.run(kit.api.work.keeping.close)
    kit.api.work.keeping = Keeping(kit.api.store, kit.api.world, None)  # as after a restart
    assert worker.one()["woken_by"] == ["sleep"]


@pytest.mark.spec("HTTP-3")
def test_the_keeper_of_the_program_is_woken_when_a_lease_may_be_over():
    rung = []
    with server(ring=lambda: rung.append(time.monotonic())) as kit:
        start(kit, 1), start(kit, 2)
        began = time.monotonic()
        Worker(kit, lease_ms=60_000, slots=1).one()
        Worker(kit, lease_ms=500, slots=1).one()
        until(lambda: rung)
        assert 0.5 <= rung[0] - began < 0.5 + SOON
        assert kit.api.work.keeping._own is None


@pytest.mark.spec("HTTP-3")
def test_events_and_ends_of_children_are_delivered_without_a_keeper():
    with server(ring=lambda: None) as kit:
        worker, parent = Worker(kit), start(kit)
        child = {"key": "c", "kind": "child", "status": "waiting", "child": {"type": "shop.ship.v1"}}
        event = {"key": "event:go", "kind": "event", "status": "waiting", "topic": "go"}
        worker.one().send("park", child, event, known=0)
        shipper = Worker(kit, types=["shop.ship.v1"]).one()
        said = {"name": "tell:emit1", "topic": "go", "payload": 1}
        shipper.send("checkpoint", {"key": "tell"}, events=[said])
        lease = worker.one()
        assert (lease.run, lease["woken_by"]) == (parent, ["event:go"])
        lease.send("park", known=lease["steps"][-1]["seq"])
        shipper.send("complete", result=1)
        assert worker.one()["woken_by"] == ["c"]
