"""A user of the server who may not do everything: a script must not find that out in its middle."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreError
from holdfast.records import Lease, NewEvent
from holdfast.stores.redis import RedisStore
from holdfast.testing.contract.driver import StoreDriver, listen
from verify.checks.redis_drift import drift

# docs/redis.md
CHANNELS = "resetchannels &{holdfast}:*"
RIGHTS = f"~{{holdfast}}:* {CHANNELS} +@all -@dangerous +info +config|get +bgrewriteaof +cluster"


@pytest.fixture
def as_user(own_server, clock):
    """Function that opens a store as a user with these rights."""
    drivers = []

    def open_as(rights):
        with own_server.client() as client:
            client.execute_command("ACL", "SETUSER", "shop", "reset", "on", ">secret", *rights.split())
        url = f"{own_server.url()}&username=shop&password=secret"
        drivers.append(StoreDriver(RedisStore(url, clock), clock))
        return drivers[-1]

    yield open_as
    for one in drivers:
        one.close()


def use(driver):
    """Start, execute, wake, cancel and purge runs, by all scripts that write."""
    one, two = driver.held(), driver.held(key="k")
    driver.checkpoint(one)
    driver.run(driver.store._extend("w1", [Lease(run=one.id, fence=one.fence)], 30.0))
    driver.complete(one)
    driver.park(two, listen(topic="parcel"))
    driver.run(driver.store.emit(NewEvent(id="e1", topic="parcel", payload="1")))
    driver.complete(driver.take(two.id))
    driver.cancel(driver.start())
    driver.clock.turn(10**8)
    assert driver.purge().runs == 3
    driver.cancel(driver.held().id)


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("rights", [RIGHTS, RIGHTS.replace(CHANNELS, "resetchannels")])
def test_a_user_without_channels_gets_no_hints_and_no_run_is_half_written(as_user, own_server, rights):
    """Since Redis 7 a new user may not use any channel."""
    driver = as_user(rights)
    use(driver)
    with own_server.client() as client:
        assert drift(client, driver.store._names) == []
    assert driver.recount() == []


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_user_who_may_not_call_a_command_of_the_scripts_is_refused_at_once(as_user):
    as_user(RIGHTS).start()
    for command in ("hset", "hincrby", "set", "zadd", "zincrby", "unlink", "expire", "zremrangebyscore"):
        with pytest.raises(StoreError, match=f"may not call {command.upper()}: allow it"):
            as_user(f"{RIGHTS} -{command}")
    as_user(RIGHTS)
