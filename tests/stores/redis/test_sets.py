"""Sets that lead to runs: differences are found, and rebuilt from the rows."""

from __future__ import annotations

import pytest

from holdfast.records import Presence
from holdfast.testing.contract.driver import TYPE, ask, listen, sleep
from holdfast.testing.contract.keys import ID, create
from servers.redis_store import server
from tests.cli.conftest import Cli


@pytest.fixture
def client():
    with server().client() as client:
        yield client


def check(driver, *, repair=False):
    (found,) = driver.run(driver.store.check_sets(repair=repair))
    return found


def filled(driver):
    """Start runs in every status, with waits, labels, children and limits."""
    for wait in (sleep("nap", 5.0), listen(topic="t"), ask("ok")):
        driver.park(driver.take(driver.start()), wait)
    driver.complete(driver.take(driver.start()))
    driver.fail(driver.take(driver.start()))
    driver.take(driver.start(limit_key="k"))
    driver.delete(driver.start())
    driver.pause(driver.start())
    driver.start(labels='{"a": "b"}', tenant="acme")
    parent = driver.start(timeout_seconds=60.0)
    driver.start(parent=parent, delay_seconds=30.0)


def sets_of(client, driver):
    prefix = driver.store.address.prefix
    names = client.scan_iter(match=f"[{{]{prefix}[}}]:*", _type="zset")
    return {name: client.zrange(name, 0, -1, withscores=True) for name in names}


@pytest.mark.spec("STORE-3")
def test_sets_agree_with_the_rows_after_all_kinds_of_moves(driver):
    filled(driver)
    assert check(driver).level == "ok"
    assert check(driver, repair=True).level == "ok"


@pytest.mark.spec("STORE-3")
def test_lost_sets_are_rebuilt_from_the_rows(driver, client):
    """Every set that follows from runs may be lost, also the one of all runs."""
    filled(driver)
    whole = sets_of(client, driver)
    kept = (":trail", ":types", ":tenants", ":outbox", ":sinks", ":chain")
    lost = [name for name in whole if not any(word in name for word in kept)]
    assert len(lost) > 30
    client.delete(*lost)
    found = check(driver)
    assert (found.level, "missing in sets" in found.what) == ("error", True)
    assert sets_of(client, driver).keys() == whole.keys() - set(lost)
    assert check(driver, repair=True).level == "warning"
    assert sets_of(client, driver) == whole
    assert check(driver).level == "ok"
    assert driver.recount() == []


@pytest.mark.spec("STORE-3")
def test_entries_that_lead_nowhere_are_removed(driver, client):
    claim = driver.held()
    driver.complete(claim)
    filled(driver)
    gone, ended, names = str(driver.id()), str(claim.id), driver.store._names
    whole = sets_of(client, driver)
    client.zadd(names("leases"), {gone: 5, ended: 5})
    client.zadd(names("status", "waiting"), {gone: 0})
    client.zadd(names.of("queue", TYPE), {f"100:{10**18:020d}:{ended}": 0})
    client.zadd(names("timers"), {f"{ended}:nap": 7})
    client.zadd(names.of("lanes", TYPE), {"default": 77})
    found = check(driver)
    assert (found.level, "6 entries lead nowhere" in found.what) == ("error", True)
    assert check(driver, repair=True).level == "warning"
    assert sets_of(client, driver) == whole


@pytest.mark.spec("STORE-3")
def test_entries_that_would_hold_runs_back_for_ever_are_removed(driver, client):
    """A limit and an API key count the members of a set, and a parent waits for its open children."""
    create(driver)
    ended, names = driver.start(), driver.store._names
    driver.complete(driver.take(ended))
    waiting = driver.start(limit_key="gold", timeout_seconds=60.0)
    sets = [
        names.of("leased", "key", "gold"), names.of("open:key", ID), names.of("leased:worker", "w1"),
        names("children:open", str(waiting)),
    ]  # fmt: skip
    driver.run(driver.store.present(Presence(worker="w1", types=(TYPE,))))
    for one in sets:
        client.zadd(one, {str(ended): 0, str(driver.id()): 0})
    found = check(driver, repair=True)
    assert (found.level, "8 entries lead nowhere" in found.what) == ("warning", True)
    assert client.exists(*sets) == 0
    assert check(driver).level == "ok"


@pytest.mark.slow
@pytest.mark.spec("CLI-1", "STORE-8")
def test_doctor_and_stats_name_the_durability_and_repair(redis_url):
    cli = Cli(redis_url)
    run = cli.start(TYPE)
    told = cli("doctor", "--recount")
    assert told.exit_code == 0
    assert (
        "ok       durability fsync: every acknowledged write is on the disk (appendfsync always)"
        in told.stdout
    )
    assert "ok       the sets that lead to runs agree with all runs" in told.stdout
    assert "ok       the kept counts agree with all runs" in told.stdout
    assert "durability  fsync: every" in cli("stats").stdout
    assert cli.json("stats")["durability"].startswith("fsync: ")
    prefix = redis_url.partition("prefix=")[2].partition("&")[0]
    with server().client() as client:
        client.zrem(f"{{{prefix}}}:status:pending", run)
        client.hset(f"{{{prefix}}}:counts", f"{TYPE}:pending", 5)
    assert cli("doctor").exit_code == 0
    told = cli("doctor", "--recount")
    assert told.exit_code == 1
    assert "1 entries of runs are missing" in told.stdout
    assert "5 pending of" in told.stdout
    assert cli("doctor", "--repair").exit_code == 0
    told = cli("doctor", "--recount")
    assert (told.exit_code, "lead nowhere" in told.stdout) == (0, False)


@pytest.mark.spec("STORE-3")
def test_sets_agree_with_a_run_in_the_far_future(driver):
    """Its time is no whole number of the server's, which keeps scores as doubles."""
    driver.start(run_at=253_402_300_799_999_999)
    assert driver.run(driver.store.check_sets(repair=True))[0].level == "ok"
