"""The server: it is refused where it may lose runs, and a restart loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import contextmanager, suppress

import pytest

from holdfast.errors import SchemaMismatch, StoreError, Unavailable
from holdfast.lifecycle import Status
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.names import Names
from holdfast.testing.contract.driver import TYPE, StoreDriver, done, item
from servers.redis import running_redis
from verify.checks.redis_drift import drift
from verify.redis_outages.aof import log_file

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


def opened_once(url):
    async def open_and_close():
        store = RedisStore(url)
        await store.open()
        found = await store.checkup()
        await store.close()
        return found

    return asyncio.run(open_and_close())


def strict(server, durability):
    return server.url().replace("durability=memory", f"durability={durability}")


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
def test_a_server_that_drops_keys_is_refused():
    """To every one of several first calls, before the first of them has heard of it."""

    async def opened_by_three(url):
        store = RedisStore(url)
        return await asyncio.gather(*(store.open() for _ in range(3)), return_exceptions=True)

    with running_redis({"maxmemory-policy": "allkeys-lru"}) as server:
        outcomes = asyncio.run(opened_by_three(server.url()))
    assert {type(one) for one in outcomes} == {StoreError}
    assert all("maxmemory-policy noeviction" in str(one) for one in outcomes)


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy noeviction"),
        ({"appendfsync": "no"}, "set appendonly yes and appendfsync always"),
    ],
)
def test_a_server_that_comes_back_with_worse_settings_is_refused(own_server, clock, settings, why):
    """The store has met the server before, and connects again by itself."""
    driver = StoreDriver(RedisStore(strict(own_server, "fsync"), clock), clock)
    run = driver.start()
    own_server.stop()
    own_server.set(settings)
    own_server.start()
    for _ in range(2):
        with pytest.raises(StoreError, match=why):
            driver.start()
    own_server.stop()
    own_server.set(ALWAYS | {"maxmemory-policy": "noeviction"})
    own_server.start()
    assert driver.take(run).id == run
    driver.close()


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
def test_settings_that_get_worse_while_the_server_runs_are_refused_by_the_next_connection(own_server, clock):
    driver = StoreDriver(RedisStore(strict(own_server, "fsync"), clock), clock)
    with own_server.client() as client:
        for name, bad, good in (
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
            ("appendfsync", "no", "always"),
        ):
            client.config_set(name, bad)
            driver.run(driver.store._connections.leave())  # so that it connects again
            with pytest.raises(StoreError, match=f"set .*{name} {good}"):
                driver.start()
            client.config_set(name, good)
            assert driver.status(driver.start()) is Status.PENDING
    driver.close()


@pytest.mark.slow
@pytest.mark.spec("STORE-8")
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (ALWAYS, "fsync"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "second"),
        ({"appendonly": "yes", "appendfsync": "no"}, "memory"),
        ({"appendonly": "no"}, "memory"),
    ],
)
def test_durability_has_a_name_and_less_than_was_asked_for_is_refused(settings, kept):
    order = ["fsync", "second", "memory"]
    with running_redis(settings) as server:
        for asked in order:
            if order.index(kept) <= order.index(asked):
                assert f"durability {kept}" in opened_once(strict(server, asked))[0].what
            else:
                with pytest.raises(StoreError, match="set appendonly"):
                    opened_once(strict(server, asked))


@pytest.mark.spec("STORE-5")
def test_a_namespace_of_another_version_is_refused(opened, own_server):
    opened("shop")
    with own_server.client() as client:
        client.hset("{shop}:numbers", "schema", "2")
    with pytest.raises(SchemaMismatch, match="version 2 of the keys"):
        opened_once(own_server.url("shop"))


@pytest.mark.spec("STORE-3")
def test_scripts_that_the_server_has_forgotten_are_sent_again(opened, own_server):
    driver = opened()
    claim = driver.held()
    with own_server.client() as client:
        client.script_flush()
    assert driver.checkpoint(claim).answer == "applied"


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_after_a_kill_of_the_server_everything_acknowledged_is_there(opened, own_server):
    driver = opened()
    claim = driver.held()
    driver.checkpoint(claim, done("first"))
    own_server.kill()
    with pytest.raises(Unavailable):
        driver.get(claim.id)
    own_server.start()
    assert driver.status(claim.id) is Status.LEASED
    assert driver.complete(claim).answer == "applied"
    assert driver.shape(claim.id) == [("first", "succeeded")]


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-4")
def test_a_server_that_has_lost_a_claim_gives_no_fence_twice(opened, own_server, tmp_path):
    """The data of the server is set back to before the claim, as by a replica that took over too early."""
    driver = opened()
    run = driver.start()
    own_server.stop()
    kept = own_server.folder / "appendonlydir"  # before version 7 it is one file
    kept = kept if kept.exists() else own_server.folder / "appendonly.aof"
    copied = shutil.copytree if kept.is_dir() else shutil.copy
    copied(kept, tmp_path / "before")
    own_server.start()
    lost = driver.take(run)
    own_server.kill()
    shutil.move(kept, tmp_path / "lost")
    copied(tmp_path / "before", kept)
    for path in (kept, *kept.rglob("*")):
        path.chmod(0o777)
    own_server.start()
    again = driver.take(run, worker="w2")
    assert again.fence > lost.fence + 1
    assert driver.complete(lost).answer == "lost"
    assert driver.complete(again).answer == "applied"


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_server_without_memory_refuses_a_write_before_it_begins(opened, own_server):
    """Redis 6.2 knows no flags of scripts. There a script whose first write frees memory is done, whole."""
    driver = opened()
    claim = driver.held()
    before = driver.snapshot(claim.id)
    with own_server.client() as client:
        client.config_set("maxmemory", "1")
        with suppress(Unavailable):
            driver.complete(claim)
        client.config_set("maxmemory", "0")
        assert drift(client, driver.store._names) == []
    if driver.get(claim.id).status is Status.SUCCEEDED:
        assert own_server.version.startswith("6.2")
    else:
        assert driver.snapshot(claim.id) == before
        assert driver.send(driver.item(claim, "complete"))[0].answer == "applied"


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_no_key_is_outside_of_the_namespace_and_two_namespaces_know_nothing_of_each_other(opened, own_server):
    one, two = opened("one"), opened("two")
    one.held()
    one.emit()
    assert two.claim(types=(TYPE,)) == []
    with own_server.client() as client:
        keys = set(client.scan_iter())
    assert keys
    assert all(key.startswith(("{one}:", "{two}:")) for key in keys)


def restarted_with(server, size):
    """Kill the server, and start it with the first bytes of its log."""
    server.kill()
    os.truncate(log_file(server.folder), size)
    server.start()


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-4")
@pytest.mark.parametrize("fast", [True, False])
def test_a_holder_whose_steps_are_lost_does_not_go_on_without_them(opened, own_server, fast):
    driver = opened()
    driver.store.fast = fast
    run = driver.start()
    claim = driver.take(run)
    size = log_file(own_server.folder).stat().st_size
    driver.checkpoint(claim, done("first"))
    restarted_with(own_server, size)
    assert driver.checkpoint(claim, done("second")).answer == "lost"
    assert driver.complete(claim).answer == "lost"
    assert driver.shape(run) == []


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-14")
@pytest.mark.parametrize("fast", [True, False])
def test_a_holder_that_has_lost_nothing_goes_on_after_a_restart(opened, own_server, fast):
    """Also when the answer to its last write was lost, and the write as well."""
    driver = opened()
    driver.store.fast = fast
    run = driver.start()
    claim = driver.take(run)
    driver.checkpoint(claim, done("first"))
    size = log_file(own_server.folder).stat().st_size
    unanswered = driver.item(claim, "checkpoint", done("second"))
    driver.send(unanswered)
    restarted_with(own_server, size)
    assert driver.send(unanswered)[0].answer == "applied"
    assert driver.complete(claim).answer == "applied"
    assert driver.shape(run) == [("first", "succeeded"), ("second", "succeeded")]


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_transaction_that_is_half_in_the_log_does_not_come_back_at_a_later_restart(opened, own_server):
    """Most servers leave its first commands in the log, and would carry them out after the next restart."""
    driver = opened()
    driver.start()
    before = log_file(own_server.folder).stat().st_size
    driver.start()
    restarted_with(own_server, (before + log_file(own_server.folder).stat().st_size) // 2)
    kept = driver.start()  # with it a new epoch begins
    with own_server.client() as client:
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.01)
    driver.start()
    own_server.kill()
    own_server.start()
    assert driver.status(kept) is Status.PENDING
    with own_server.client() as client:
        assert len(list(client.scan_iter(match="{holdfast}:run:*"))) == 3
        assert drift(client, Names("holdfast")) == []


def copies(replica, primary):
    """Let a server copy another one, and wait until it has everything."""
    with replica.client() as client, primary.client() as other:
        client.replicaof("127.0.0.1", primary.port)
        while client.info("replication").get("master_link_status") != "up":
            time.sleep(0.02)
        assert other.wait(1, 10_000) == 1


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-4")
@pytest.mark.parametrize("fast", [True, False])
def test_a_connection_that_outlives_two_failovers_is_given_no_fence_of_a_lost_claim(clock, fast):
    """The first server is the primary again, and lacks a claim of the second one. Nobody has reconnected."""
    settings = {"repl-diskless-sync-delay": "0"}
    with (
        running_redis(settings, listens=("port",)) as first,
        running_redis(settings, listens=("port",)) as second,
    ):
        idle = StoreDriver(RedisStore(first.url(), clock), clock)
        idle.store.fast = fast
        run = idle.start()
        copies(second, first)
        with second.client() as client:
            client.replicaof("NO", "ONE")
        other = StoreDriver(RedisStore(second.url(), clock), clock)
        other.get(run)  # the epoch of the second server begins
        copies(first, second)
        with first.client() as client:
            client.replicaof("NO", "ONE")
        lost = other.take(run, worker="w2")
        assert idle.take(run).fence > lost.fence + 1
        other.close()
        idle.close()


@pytest.fixture
def two_servers(clock):
    """Two servers that can copy each other, and a store on the first one, which nobody leaves."""
    settings = {"repl-diskless-sync-delay": "0"}
    with (
        running_redis(settings, listens=("port",)) as first,
        running_redis(settings, listens=("port",)) as second,
    ):
        driver = StoreDriver(RedisStore(first.url(), clock), clock)
        yield first, second, driver
        driver.close()


@contextmanager
def lost_by_a_failover_and_back(first, second):
    """The second server takes over, with all that there is, and then the first one again. Writes inside this
    block reach the first server alone, and are lost. No client connects to the second server."""
    copies(second, first)
    with first.client() as client, second.client() as other:
        other.replicaof("NO", "ONE")
        yield
        client.replicaof("127.0.0.1", second.port)
        while client.info("replication").get("master_link_status") != "up":
            time.sleep(0.02)
        client.replicaof("NO", "ONE")


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-4")
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_failover_and_back_that_nobody_has_seen_gives_no_fence_twice(two_servers, clock, fast, is_new):
    """is_new: the next claim comes over a connection that is made afterwards."""
    first, second, driver = two_servers
    driver.store.fast = fast
    run = driver.start()
    with lost_by_a_failover_and_back(first, second):
        lost = driver.take(run)
        assert driver.checkpoint(lost, done("charge")).answer == "applied"
    other = StoreDriver(RedisStore(first.url(), clock), clock) if is_new else driver
    again = other.take(run, worker="w2")
    assert again.fence > lost.fence + 1
    late = item("checkpoint", done("ship"), run=run, fence=lost.fence, number=2)
    assert driver.send(late)[0].answer == "lost"
    if other is not driver:
        other.close()


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "LEASE-4")
@pytest.mark.parametrize("fast", [True, False])
def test_a_holder_whose_step_a_failover_and_back_has_lost_cannot_go_on(two_servers, fast):
    """Its claim is there, and nobody else claims: the holder itself is the first to write."""
    first, second, driver = two_servers
    driver.store.fast = fast
    claim = driver.held()
    with lost_by_a_failover_and_back(first, second):
        assert driver.checkpoint(claim, done("charge")).answer == "applied"
    assert driver.complete(claim, done("ship")).answer == "lost"
    assert driver.shape(claim.id) == []


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_failover_and_back_that_lost_nothing_stops_no_holder(two_servers):
    first, second, driver = two_servers
    claim = driver.held()
    driver.checkpoint(claim, done("charge"))
    with lost_by_a_failover_and_back(first, second):
        pass
    assert driver.checkpoint(claim, done("ship")).answer == "applied"
    assert driver.complete(claim).answer == "applied"
    assert driver.shape(claim.id) == [("charge", "succeeded"), ("ship", "succeeded")]
