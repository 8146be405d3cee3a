"""Saving: a change is applied only if everything that it was decided by is still the same.

Others write between the reads of a verb, between two commands of one pipeline, and before its save.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from holdfast.contract import GONE_SECONDS
from holdfast.machine import people
from holdfast.machine.commit import answer
from holdfast.records import ANY, Ask, Lease, Outbound, Presence, RelayAsk, Relayed
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.nodes import SCHEMA
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.redis.verbs.keeper import expire
from holdfast.stores.redis.view import RedisView
from holdfast.testing.contract.driver import TYPE, StoreDriver, call, done, listen
from servers.redis_store import server
from verify.checks.redis_drift import drift

RELAY = RelayAsk(relay="r", sinks=("mail",), limit=10)


def decided(driver, work):
    """Return a snapshot with the changes of a function, not saved yet."""
    snapshot = Snapshot(driver.store._names, driver.clock)
    driver.run(driver.store._decided(snapshot, work))
    return snapshot


def saved(driver, snapshot):
    return driver.run(driver.store._save(snapshot))


def checkpoint(item):
    def work(snapshot):
        view = RedisView(snapshot)
        answer(view, view.run(item.run), item)
        view.save()

    return work


@pytest.mark.spec("STORE-3")
def test_of_two_changes_that_were_decided_by_the_same_row_one_is_applied(driver):
    claim = driver.held()
    one = decided(driver, checkpoint(driver.item(claim, "checkpoint", done("one"))))
    two = decided(driver, checkpoint(driver.item(claim, "checkpoint", done("two"))))
    assert saved(driver, one) == [1]
    assert saved(driver, two) == [0]
    assert driver.shape(claim.id) == [("one", "succeeded")]


@pytest.mark.spec("STORE-3", "LEASE-4")
def test_a_decision_by_a_server_that_has_lost_writes_meanwhile_is_not_applied(driver):
    """The run may have the same `rev` again, with another content: here it is even the same."""
    claim, store = driver.held(), driver.store
    driver.clock.turn(1000)
    expired = decided(driver, partial(expire, limit=10))
    with store.client() as client:
        history = client.info("replication")["master_replid"]
    words = [f"another process:{history}", 1, SCHEMA]
    names = store._names
    driver.run(store._connections.run("epoch", [names.numbers, names.trail, names("absent")], words))
    assert saved(driver, expired) == [0]
    assert driver.get(claim.id).status == "leased"


@pytest.mark.spec("STORE-3", "EVENT-3")
def test_a_park_that_has_not_seen_an_event_is_not_saved_over_it(driver):
    """It is decided again, and takes the event."""
    claim = driver.held()
    parked = decided(driver, checkpoint(driver.item(claim, "park", listen(topic="parcel"))))
    driver.emit("parcel")
    assert saved(driver, parked) == [0]
    assert driver.park(claim, listen(topic="parcel")).settled


@pytest.mark.spec("STORE-3", "LEASE-2")
def test_a_claim_does_not_take_a_run_that_was_claimed_between_its_reads(driver):
    """Under limits the queue is read before the row: the row counts."""
    driver.run(driver.store.limit("key", "bank", concurrency=1))
    run = driver.start()
    store, asked = driver.store, driver.store._connections.ask
    stolen = []

    async def ask(commands):
        answers = await asked(commands)
        if not stolen and any(command[0] == "ZRANGEBYLEX" for command in commands):
            stolen.append(True)
            store._connections.ask = asked
            other = await store.claim(claim_ask("thief"))
            assert [one.id for one in other] == [run]
        return answers

    store._connections.ask = ask
    assert driver.claim(worker="late") == []
    assert stolen
    assert driver.get(run).leased_by == "thief"


def claim_ask(worker):
    return Ask(worker=worker, types=(TYPE,), limit=10)


@pytest.mark.spec("STORE-3")
def test_a_plain_checkpoint_does_not_disturb_a_decision_by_the_row(driver):
    """Otherwise a busy holder would starve people; a decision that has read steps is made again."""
    claim = driver.held()

    def pause(snapshot):
        view = RedisView(snapshot)
        people.pause(view, claim.id, None, "me")
        view.save()

    paused = decided(driver, pause)
    assert driver.checkpoint(claim).answer == "applied"
    assert saved(driver, paused) == [1]
    assert driver.get(claim.id).pause_asked_by == "me"
    parked = decided(driver, checkpoint(driver.item(claim, "park", listen())))
    assert driver.checkpoint(claim, done("more")).answer == "paused"
    assert saved(driver, parked) == [0]


def pause(view, run):
    people.pause(view, run.id, None, "me")


def delete(view, run):
    people.delete(view, run.id, None, "me")


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("move", [pause, delete])
def test_a_decision_by_the_row_keeps_the_numbers_of_a_plain_checkpoint(driver, move):
    """No two steps have the same number: lists, rewinds and the next claim go by it."""
    claim = driver.held()
    driver.checkpoint(claim, done("a"))

    def work(snapshot):
        view = RedisView(snapshot)
        move(view, view.run(claim.id))
        view.save()

    moved = decided(driver, work)
    assert driver.checkpoint(claim, done("b")).answer == "applied"
    assert saved(driver, moved) == [1]
    if move is delete:
        driver.restore(claim.id)
        claim = driver.take()
    driver.checkpoint(claim, done("c"))
    assert [(step.key, step.seq) for step in driver.steps(claim.id)] == [("a", 1), ("b", 2), ("c", 3)]
    with driver.store.client() as client:
        assert drift(client, driver.store._names) == []


@pytest.mark.spec("LEASE-7")
def test_a_renewal_works_while_the_event_loop_is_running(driver):
    """It is called from any thread, also from one that runs a loop."""
    claim = driver.held()

    async def inside():
        return driver.store.renew("w1", [Lease(run=claim.id, fence=claim.fence)], 30.0)

    assert driver.run(inside()).held[0].answer == "applied"


@pytest.mark.spec("STORE-3", "FLOW-7")
def test_a_park_depends_on_the_ends_of_children_and_on_none_of_their_other_moves(driver):
    """Otherwise a parent of many busy children would be decided again and again."""
    claim, types = driver.held(), ("shop.child.v1",)
    driver.checkpoint(claim, *(call(key, driver.id(), *types) for key in "abc"), known=0)

    def park():
        return decided(driver, checkpoint(driver.item(claim, "park", known=0)))

    not_seen = park()
    first, *others = driver.claim(types=types)
    driver.complete(first)
    assert saved(driver, not_seen) == [0]
    assert [step.status for step in driver.park(claim, known=0).settled] == ["succeeded"]
    parked = decided(driver, checkpoint(driver.item(claim, "park", known=100)))
    driver.release(others[0])
    driver.claim(types=types)
    assert saved(driver, parked) == [1]


@pytest.fixture
def other(driver, clock):
    """A second store with the same data."""
    made = StoreDriver(RedisStore(server().url(driver.store.address.prefix), clock), clock)
    yield made
    made.close()


@pytest.fixture
def after_read(monkeypatch):
    """Function that lets something happen once, right after a command was read, also inside a pipeline."""

    def arrange(driver, is_it, happens):
        connections, left = driver.store._connections, [happens]
        ask = connections.ask

        async def torn(commands):
            found = []
            for command in commands:
                found += await ask([command])
                if left and is_it(command):
                    await asyncio.to_thread(left.pop())
            return found

        monkeypatch.setattr(connections, "ask", torn)

    return arrange


@pytest.fixture
def before_save(monkeypatch):
    """Function that lets something happen once, before a save that names a key with this in its name."""

    def arrange(driver, part, happens):
        save, left = driver.store._save, [happens]

        async def late(snapshot):
            if left and any(part in key for key in snapshot.packed()[0]):
                await asyncio.to_thread(left.pop())
            return await save(snapshot)

        monkeypatch.setattr(driver.store, "_save", late)

    return arrange


def relayed(driver):
    return driver.run(driver.store.relay(RELAY))


def report(driver, parcel, answer):
    said = Relayed(id=parcel.id, fence=parcel.fence, answer=answer)
    assert driver.run(driver.store.relayed([said])) == [True]


@pytest.mark.spec("OUT-1")
def test_a_message_is_due_though_the_one_before_it_leaves_while_it_is_sent_again(driver, other, after_read):
    claim = driver.held()

    def send(id):
        driver.checkpoint(claim, done(id), outbox=(Outbound(id=id, sink="mail", key="K", payload="1"),))

    send("second")
    report(driver, *relayed(driver), "dead")
    send("first")
    (first,) = relayed(driver)
    after_read(other, lambda one: ":line:" in str(one[1]), lambda: report(driver, first, "sent"))
    other.run(other.store.resend("second", ANY))
    assert [one.id for one in relayed(driver)] == ["second"]


@pytest.mark.spec("LIMIT-1")
def test_a_limit_counts_that_is_set_while_a_worker_reads_the_limits(driver, other, after_read):
    for _ in range(3):
        driver.start()
    limit = other.store.limit
    after_read(
        driver, lambda one: one[:2] == ("HGETALL", driver.store._names("limits")),
        lambda: other.run(limit("type", TYPE, concurrency=1)),
    )  # fmt: skip
    assert len(driver.claim() + driver.claim()) == 1


@pytest.mark.spec("LIMIT-1")
def test_a_limit_counts_that_is_set_before_a_claim_of_the_machine_is_saved(driver, other, before_save):
    for _ in range(3):
        driver.start()
    driver.store.fast = False

    def limit():
        other.run(other.store.limit("type", TYPE, concurrency=1))
        assert len(other.claim(worker="w2")) == 1

    before_save(driver, ":queue:", limit)
    assert driver.claim() == []


@pytest.mark.spec("LIMIT-1")
def test_claims_of_the_machine_without_a_limit_do_not_disturb_each_other(driver, other, before_save):
    runs = [driver.start() for _ in range(3)]
    driver.store.fast = other.store.fast = False
    before_save(driver, ":queue:", lambda: other.claim(limit=1, worker="w2"))
    assert [one.id for one in driver.claim()] == runs[1:]


@pytest.mark.spec("EVENT-6")
def test_a_purge_leaves_an_event_alone_whose_id_was_used_again(driver, other, clock, before_save):
    driver.emit(id="e1")
    clock.turn(GONE_SECONDS * 400)
    purged = []

    def again():
        purged.append(other.purge().events)
        assert not other.emit(id="e1").duplicate

    before_save(driver, ":event:default:e1", again)
    assert (driver.purge().events, purged) == (0, [1])
    assert driver.emit(id="e1").duplicate


@pytest.mark.spec("TTL-1")
def test_a_purge_leaves_a_worker_alone_that_has_come_back(driver, other, clock, before_save):
    worker = Presence(worker="w1", types=(TYPE,))
    driver.run(driver.store.present(worker))
    clock.turn(GONE_SECONDS + 1)
    before_save(driver, ":workers", lambda: other.run(other.store.present(worker)))
    driver.purge()
    assert [one.worker for one in driver.stats().workers] == ["w1"]
