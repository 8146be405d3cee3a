"""Sets, guards and fast paths: rare moments in which a run could wait for ever, or others get no work."""

from __future__ import annotations

import os
from uuid import uuid4

import pytest

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import UsageError
from holdfast.records import ANY, Ask, Definition, Lease, NewEvent, NewRun, Relayed
from holdfast.records.outgoing import RelayAsk
from holdfast.stores.redis.batches import IN_SCRIPT
from holdfast.testing.contract.driver import TYPE, done, listen, sleep
from holdfast.testing.contract.outbox import message, sent_by
from servers.redis_store import server


def members(driver, name):
    with server().client() as client:
        return client.zrange(driver.store._names(name), 0, -1)


@pytest.mark.spec("RETRY-9", "STORE-3")
def test_a_run_that_has_ended_leaves_the_set_of_timeouts(driver):
    """Otherwise ended runs fill the first page of it, and later runs never time out."""
    driver.start(timeout_seconds=60.0, limit_key="k", labels='{"a":"b"}')
    driver.complete(driver.claim()[0])
    assert members(driver, "timeouts") == []
    (finding,) = driver.run(driver.store.check_sets())
    assert finding.level == "ok"


@pytest.mark.spec("OPS-1", "RETRY-9")
@pytest.mark.parametrize("name", ["timeouts", "leases", "owing"])
def test_a_stray_member_of_a_set_is_removed_by_a_keeper(driver, name):
    """It stands in the place of others, and would be looked at for ever."""
    ended = driver.held()
    driver.complete(ended)
    with server().client() as client:
        client.zadd(driver.store._names(name), {str(ended.id): 1, "018bcfe5-0000-7000-8000-00000000dead": 1})
    driver.run(driver.store.tick())
    assert members(driver, name) == []


@pytest.mark.spec("OPS-1", "FLOW-4")
def test_stray_timers_do_not_stand_in_the_place_of_others(driver):
    """More of them than a script looks at: waits that are over, runs that are gone, a time that is too
    early."""
    ended, sleeping, late = driver.held(), driver.held(), driver.held()
    driver.complete(ended)
    driver.park(sleeping, sleep(seconds=10.0))
    driver.park(late, sleep(seconds=1000.0))
    timers = driver.store._names("timers")
    gone = [f"018bcfe5-0000-7000-8000-{number:012x}:nap" for number in range(IN_SCRIPT)]
    with server().client() as client:
        (right,) = (client.zscore(timers, one) for one in client.zrange(timers, 1, 1))
        client.zadd(timers, dict.fromkeys([*gone, f"{ended.id}:nap", f"{late.id}:nap"], 1))
    driver.clock.turn(11)
    driver.run(driver.store.tick())
    assert driver.get(sleeping.id).status == "pending"
    with server().client() as client:
        assert client.zrange(timers, 0, -1, withscores=True) == [(f"{late.id}:nap", right)]


@pytest.mark.spec("EVENT-4", "STORE-3")
def test_a_park_notices_an_event_although_an_older_one_was_purged_meanwhile(driver):
    """The number of events of a topic is the same before and after, but the newest one is another."""
    driver.emit("parcel", id="old")
    driver.clock.turn(EVENT_KEEP_SECONDS + 1)
    claim = driver.held()
    save, store = driver.store._save, driver.store

    async def late(snapshot):
        store._save = save
        assert (await store.purge()).events == 1
        await store.emit(NewEvent(topic="parcel", id="new"))
        return await save(snapshot)

    store._save = late
    assert driver.park(claim, listen(topic="parcel")).settled


@pytest.mark.slow
@pytest.mark.spec("LEASE-6", "LEASE-1")
def test_a_claim_finds_a_run_behind_very_many_that_it_may_not_take(driver):
    """A whole fleet has crashed: the worker may take none of these runs, but the one behind them."""
    runs = [NewRun(id=uuid4(), type=TYPE) for _ in range(1001)]
    driver.run(driver.store.start(runs))
    with server().client() as client, client.pipeline() as pipe:
        for run in runs:
            fields = {"crashes": 1, "writes": "- 0 4 0 0 0 1"}  # the last number: there may be crashes
            pipe.hset(driver.store._names.run(run.id), mapping=fields)
        pipe.execute()
    driver.clock.turn(1)
    healthy = driver.start()
    ask = Ask(worker="w1", types=(TYPE,), limit=1, crashed=(0,))
    assert [one.id for one in driver.run(driver.store.claim(ask))] == [healthy]


@pytest.mark.spec("LIMIT-1")
def test_a_claim_reads_few_runs_of_a_lane_that_is_full(driver):
    """One lane has room, and its run is the last of the queue."""
    store = driver.store
    driver.run(store.limit("key", "bank", concurrency=1))
    driver.run(store.start([NewRun(id=uuid4(), type=TYPE, limit_key="bank") for _ in range(80)]))
    assert len(driver.claim()) == 1
    driver.clock.turn(1)
    free, read, asked = driver.start(), set(), store._connections.ask

    async def ask(commands):
        read.update(command[1] for command in commands if command[0] == "HMGET")
        return await asked(commands)

    store._connections.ask = ask
    assert [one.id for one in driver.claim(limit=1)] == [free]
    assert len(read) < 30


@pytest.mark.spec("OUT-1")
def test_a_relay_does_not_take_a_message_that_was_sent_between_its_reads(driver):
    sent_by(driver, message("m1"))
    store, asked = driver.store, driver.store._connections.ask
    (first,) = driver.run(store.relay(RelayAsk(relay="slow", sinks=("mail",), lease_seconds=1.0)))
    driver.clock.turn(2)

    async def ask(commands):
        answers = await asked(commands)
        if any(command[0] == "ZRANGE" and ":outbox:due:" in command[1] for command in commands):
            store._connections.ask = asked
            assert await store.relayed([Relayed(id="m1", fence=first.fence, answer="sent")]) == [True]
        return answers

    store._connections.ask = ask
    assert driver.run(store.relay(RelayAsk(relay="fast", sinks=("mail",)))) == []


@pytest.mark.spec("PLAN-12")
def test_the_same_definition_again_writes_nothing(driver):
    """Every worker publishes when it starts, and others would have to read all definitions again."""
    store = driver.store
    driver.run(store.publish([Definition(type=TYPE, max_attempts=7)]))
    with server().client() as client:
        before = client.hget(store._names.numbers, "published")
        driver.run(store.publish([Definition(type=TYPE, max_attempts=7)]))
        assert client.hget(store._names.numbers, "published") == before


@pytest.mark.spec("MOVE-2", "TEN-6")
def test_a_large_batch_with_a_refused_item_writes_nothing(driver):
    """It is sent in several scripts, so the refusal must be found before the first of them."""
    claims = [driver.held(), driver.held(), driver.held()]
    large = [done(f"s{n}", output='"' + "x" * 3_000_000 + '"') for n in range(2)]
    items = [
        driver.item(one, "checkpoint", step, progress="1")
        for one, step in zip(claims[:2], large, strict=True)
    ]
    items.append(
        driver.item(claims[2], "checkpoint", done("s"), events=(NewEvent(topic="t", id="e", tenant="x"),))
    )
    with pytest.raises(UsageError):
        driver.send(*items)
    assert [driver.shape(one.id) for one in claims] == [[], [], []]


@pytest.mark.slow
@pytest.mark.spec("LEASE-8")
def test_a_child_process_leaves_the_renewals_of_its_parent_alone(driver):
    claim = driver.held()
    lease = Lease(run=claim.id, fence=claim.fence)
    assert driver.store.renew("w1", [lease], 30.0).held[0].answer == "applied"
    child = os.fork()
    if child == 0:
        driver.store._end_renewals()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    driver.clock.turn(5)
    assert driver.store.renew("w1", [lease], 30.0).held[0].answer == "applied"


@pytest.mark.spec("LEASE-8")
def test_a_child_process_renews_although_its_parent_was_renewing_at_the_fork(driver):
    """The thread that holds the lock does not exist in the child."""
    claim = driver.held()
    leases = [Lease(run=claim.id, fence=claim.fence)]
    with driver.store._renewing:  # as during a renewal of another thread
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if driver.store.renew("w1", leases, 3.0).held[0].answer == "applied" else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.spec("TRAIL-3")
def test_a_follower_gets_status_and_rows_of_one_instant(driver):
    """Otherwise a run that is retried while it is read would seem to have ended."""
    claim, store = driver.held(), driver.store
    driver.fail(claim)
    asked, moved = store._connections.ask, []

    async def ask(commands):
        answers = await asked(commands)
        if not moved:
            moved.append(True)  # the row was read, and the trail was not
            await store.retry_run(claim.id, ANY)
        return answers

    store._connections.ask = ask
    (found,) = driver.run(store.follow([(claim.id, 0)], ANY))
    assert (found.status, found.entries[-1].type) == ("pending", "retried")
