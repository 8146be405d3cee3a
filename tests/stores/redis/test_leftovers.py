"""Purges: names, counts and receipts that nothing needs any more are removed, and large runs in parts."""

from __future__ import annotations

from functools import partial
from itertools import groupby

import pytest

from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import UnknownRun
from holdfast.machine.carrying import BEING_PURGED
from holdfast.records import ANY
from holdfast.stores.redis.verbs import purge
from holdfast.testing.contract.chains import go_on, purge_all, wait
from holdfast.testing.contract.driver import done
from holdfast.testing.contract.outbox import answered, message, relay, sent_by
from holdfast.testing.contract.transfers import runs, write
from servers.redis_store import server

OLD, OTHER = "shop.old.v1", "shop.other.v1"
MONTHS_SECONDS = 100 * 86400.0
WEEK = 7 * 86_400.0


@pytest.fixture
def client(driver):
    with server().client() as client:
        yield client


@pytest.fixture
def named(driver, client):
    """Function that returns the members of a set of names."""
    return lambda which: client.zrange(driver.store._names(which), 0, -1)


@pytest.mark.spec("TTL-1", "STORE-3")
def test_types_and_tenants_are_gone_with_their_last_run(driver, client, named):
    names = driver.store._names
    driver.start(OLD, tenant="acme")
    driver.complete(driver.take(types=(OLD,)))
    driver.start(OTHER)
    assert (named("types"), named("tenants")) == ([OLD, OTHER], ["acme", "default"])
    driver.clock.turn(MONTHS_SECONDS)
    assert purge_all(driver) == 1
    assert (named("types"), named("tenants")) == ([OTHER], ["default"])
    left = client.hgetall(names("counts"))
    assert {field for field, number in left.items() if number == "0"} == set()
    assert {field.rpartition(":")[2] for field in client.hgetall(names.of("counts", "acme"))} == {
        "+started", "+succeeded",
    }, "only totals stay"  # fmt: skip
    assert driver.counts("acme").totals == {OLD: {"started": 1, "succeeded": 1}}
    assert driver.recount() == []
    driver.start(OLD, tenant="acme")
    assert (named("types"), named("tenants")) == ([OLD, OTHER], ["acme", "default"])
    assert [(one.type, one.tenant) for one in driver.scale().items] == [(OLD, "acme"), (OTHER, "default")]


@pytest.mark.spec("STORE-3")
def test_a_tenant_stays_whose_counts_are_wrong(driver, client, named):
    """A recount would not find it otherwise."""
    driver.start(OLD, tenant="acme")
    driver.complete(driver.take(types=(OLD,)))
    client.hset(driver.store._names.of("counts", "acme"), f"{OLD}:waiting", 3)
    driver.clock.turn(MONTHS_SECONDS)
    assert purge_all(driver) == 1
    assert named("tenants") == ["acme"]
    wrong = [(one.tenant, one.status, one.kept, one.real) for one in driver.recount()]
    assert ("acme", "waiting", 3, 0) in wrong


@pytest.mark.spec("OUT-1", "STORE-3")
def test_a_sink_is_gone_with_its_last_message_and_comes_back(driver, named):
    driver.complete(sent_by(driver, message("m1"), message("m2", "hooks")))
    for parcel in relay(driver, ("mail", "hooks")):
        answered(driver, parcel, "dead" if parcel.sink == "hooks" else "sent")
    driver.complete(sent_by(driver, message("m3", "hooks")))
    answered(driver, *relay(driver, ("hooks",)), "dead")
    assert named("sinks") == ["hooks", "mail"]
    driver.clock.turn(MONTHS_SECONDS)
    assert driver.purge(limit=1).runs == 1
    assert named("sinks") == ["hooks"]
    driver.run(driver.store.resend("m3", ANY))
    assert [(one.sink, one.pending) for one in driver.run(driver.store.backlog())] == [("hooks", 1)]


@pytest.mark.spec("FLOW-16", "EVENT-3")
def test_an_endless_chain_keeps_no_receipts_of_events_that_are_gone(driver, client):
    """An event that is still there is not taken a second time, although the run that took it is gone."""
    names, claim = driver.store._names, driver.held()
    first = claim.id
    claim = driver.take(go_on(driver, claim))
    driver.emit(payload='"kept"', keep_seconds=10 * MONTHS_SECONDS)
    for n in range(3):
        driver.emit(payload=str(n))
    taken = []
    for _ in range(4):
        taken.append(wait(driver, claim))
        claim = driver.take(go_on(driver, claim))
    assert taken == ["kept", 0, 1, 2]
    assert client.hlen(names("receipts", str(first))) == 4
    driver.clock.turn(EVENT_KEEP_SECONDS + 1)
    driver.tick()
    claim = driver.take(claim.id)
    purge_all(driver, ttl_seconds=1.0)
    assert client.hlen(names("receipts", str(first))) == 1
    assert (client.zcard(names("taken")), client.exists(names("taken:void"))) == (1, 0)
    assert wait(driver, claim) is None


# Runs with very many rows are removed in parts, each of which is a short script.


@pytest.fixture
def ended(driver, monkeypatch):
    """A run with more rows, messages and events than one script removes."""
    monkeypatch.setattr(purge, "TRAIL_ROWS", 5)
    monkeypatch.setattr(purge, "PARTS", 2)
    claim = driver.held(key="large")
    for number in range(7):
        driver.emit(run=claim.id, id=f"e{number}")
        driver.checkpoint(claim, done(f"s{number}"), outbox=(message(f"m{number}"),))
    driver.complete(claim)
    for parcel in relay(driver):
        answered(driver, parcel)
    return claim.id


def traces(driver, run):
    """Return the keys that name a run, and its rows in the trail of all."""
    prefix = driver.store.address.prefix
    with server().client() as client:
        keys = [key for key in client.scan_iter(match=f"[{{]{prefix}[}}]:*") if str(run) in key]
        return keys + [row for row in client.zrange(driver.store._names.trail, 0, -1) if str(run) in row]


@pytest.mark.spec("STORE-3", "READ-4")
def test_a_run_with_very_many_rows_is_removed_in_parts(driver, ended):
    other = driver.held()
    driver.complete(other)
    driver.clock.turn(WEEK)
    assert driver.purge(ttl_seconds=0.0).runs == 2
    assert traces(driver, ended) == []
    assert driver.run(driver.store.recount()) == []


@pytest.mark.spec("STORE-3")
def test_a_run_that_is_partly_removed_is_hidden_and_stays_so(driver, ended):
    driver.clock.turn(WEEK)
    first = purge.Place("ended", 0, 10, 10)
    work = partial(purge._purge_some, terms=purge.Terms(0, 10**12), place=first)
    removed, passed, is_end = driver.run(driver.store._change(work))
    assert (removed.runs, passed, is_end) == (0, 0, False)
    assert driver.get(ended) is None
    with pytest.raises(UnknownRun):
        driver.restore(ended)
    assert driver.purge(ttl_seconds=0.0).runs == 1
    assert traces(driver, ended) == []


@pytest.mark.spec("STORE-6", "STORE-3")
def test_a_run_that_is_partly_removed_is_not_imported_anew(driver, ended):
    """The purge would go on, and remove the imported run."""
    (part,) = [one for one in runs(driver) if one.id == ended]
    driver.clock.turn(WEEK)
    work = partial(purge._purge_some, terms=purge.Terms(0, 10**12), place=purge.Place("ended", 0, 10, 10))
    driver.run(driver.store._change(work))
    (answer,) = write(driver, [part])
    assert (answer.answer, answer.reason) == ("refused", BEING_PURGED)
    assert driver.purge(ttl_seconds=0.0).runs == 1
    (answer,) = write(driver, [part])
    assert answer.answer == "imported"


@pytest.mark.spec("TTL-1", "STORE-3")
def test_a_purge_goes_on_behind_very_many_runs_that_must_be_kept(driver, monkeypatch):
    """Messages of these runs are not delivered yet. They are looked at once, and not by each slice."""
    monkeypatch.setattr(purge, "LOOKED", 5)
    for number in range(30):
        driver.complete(driver.held(), outbox=(message(f"m{number}"),))
    for _ in range(3):
        driver.clock.turn(1)
        driver.complete(driver.held())
    driver.clock.turn(WEEK)
    store, looked = driver.store, []
    some = purge._purge_some

    def counting(snapshot, terms, place):
        looked.append((place.set, place.at))
        return some(snapshot, terms, place)

    monkeypatch.setattr(purge, "_purge_some", counting)
    assert [driver.purge(ttl_seconds=0.0, limit=1).runs for _ in range(4)] == [1, 1, 1, 0]
    # The function runs several times for one slice.
    ranks = [at for (name, at), _ in groupby(looked) if name == "ended"]
    assert ranks == [0, 20, 25, 30, 30, 30, 0, 20, 25, 30]
    assert driver.run(store.check_sets())[0].level == "ok"
