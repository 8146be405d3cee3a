"""Scripts: an error in any of their calls leaves nothing half written."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.errors import StoreError
from holdfast.records import Ask, Lease, NewRun
from holdfast.stores.redis.scripts import script
from holdfast.testing.contract.driver import TYPE, done
from servers.redis import forget
from servers.redis_store import server

WRITES = frozenset({
    "DEL", "EXPIRE", "HDEL", "HINCRBY", "HSET", "HSETNX", "PUBLISH", "SET", "UNLINK", "ZADD", "ZINCRBY",
    "ZREM", "ZREMRANGEBYSCORE",
})  # fmt: skip


class Caught(Exception):
    """A call of a script that was not sent."""


def start(driver):
    new = NewRun(id=uuid4(), type=TYPE, key="k1", labels='{"a":"b"}', timeout_seconds=60.0)
    driver.run(driver.store.start([new, NewRun(id=uuid4(), type=TYPE, tenant="other")]))


def claim(driver):
    driver.run(driver.store.claim(Ask(worker="w1", types=(TYPE,), limit=10)))


def checkpoint_and_complete(driver):
    one, two = driver.claims
    driver.run(driver.store.commit([driver.item(one, "checkpoint", done("s")), driver.item(two, "complete")]))


def renew(driver):
    leases = [Lease(run=one.id, fence=one.fence, started_at=1, heartbeat=True) for one in driver.claims]
    driver.run(driver.store._extend("w1", leases, 30.0))


def cancel(driver):
    driver.cancel(driver.claims[0].id)


VERBS = {
    "start": start, "claim": claim, "hold": checkpoint_and_complete, "renew": renew, "save": cancel,
}  # fmt: skip


@pytest.fixture(params=VERBS)
def called(request, driver):
    """Function that sets the store up anew, and returns the call that a verb would send: script, keys, words.

    The first test of a verb also shows that it sends this script at all.
    """
    run_all = driver.store._connections.run_all

    def prepare():
        with server().client() as client:
            forget(client, f"prefix={driver.store.address.prefix}&")
        driver.store._published.forget()
        driver.run(driver.store.close())
        driver.run(driver.store.open())
        for _ in range(2):
            driver.start()
        driver.claims = [] if request.param in {"start", "claim"} else driver.claim(limit=2)
        sent = []

        async def catch(name, calls):
            sent.extend((name, *call) for call in calls)
            raise Caught

        driver.store._connections.run_all = catch
        try:
            with pytest.raises(Caught):
                VERBS[request.param](driver)
        finally:
            driver.store._connections.run_all = run_all
        ((name, keys, words),) = sent
        assert name == request.param
        return name, keys, words

    return prepare


def pattern(driver):
    prefix = driver.store.address.prefix
    return f"[{{]{prefix}[}}]:*"


READS = {
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "string": ("GET",),
}


def dump(driver):
    """Return everything that the namespace holds."""
    with server().client() as client:
        return held(client, pattern(driver))


def held(client, keys):
    """Return the keys of a pattern, with what they hold."""
    found = list(client.scan_iter(match=keys, count=1000))
    kinds = _answers(client, [("TYPE", key) for key in found])
    reads = [(READS[kind][0], key, *READS[kind][1:]) for key, kind in zip(found, kinds, strict=True)]
    return dict(zip(found, _answers(client, reads), strict=True))


def _answers(client, commands):
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return pipeline.execute()


def failing(text, number):
    """Return a script whose call of this number fails, with the names of all calls so far."""
    counting = f"""local names = {{}}
local function called(command, ...)
  names[#names + 1] = command
  if #names == {number} then error('made to fail: ' .. table.concat(names, ' ')) end
  return redis.call(command, ...)
end
"""
    head, flags, body = text.rpartition("#!lua flags=\n")
    return head + flags + counting + body.replace("redis.call(", "called(")


def evaluate(driver, text, keys, words):
    return driver.run(driver.store._connections.ask([("EVAL", text, len(keys), *keys, *words)]))


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_an_error_in_a_call_before_the_first_write_leaves_nothing(driver, called):
    """All reads come before the first write: after it, there are only writes."""
    name, keys, words = called()
    text = script(name, flagged=driver.store._connections.flagged).text
    before, number = dump(driver), 0
    while True:
        number += 1
        try:
            evaluate(driver, failing(text, number), keys, words)
        except StoreError as error:
            names = str(error).partition("made to fail: ")[2].split("\n")[0].split()
            names = [name.strip(",") for name in names[:number]]
        else:
            break
        assert len(names) == number
        if WRITES.isdisjoint(names[:-1]):
            assert dump(driver) == before
        else:
            assert names[-1] in WRITES, f"{name} reads after its first write: {names}"
            called()
            before = dump(driver)
    assert number > 4


@pytest.mark.slow
@pytest.mark.spec("STORE-3", "MOVE-6")
def test_a_key_of_the_wrong_type_is_refused_before_the_first_write(driver, called):
    """This is how a write could fail after others: somebody else has used one of our keys."""
    _, keys, _ = called()
    places = range(len(keys))
    with server().client() as client:
        more = [key for key in client.scan_iter(match=pattern(driver)) if key not in keys]
    refused = 0
    for number, place in enumerate((*places, *more)):
        name, keys, words = called()
        spoilt = keys[place] if number in places else place
        with server().client() as client:
            if client.type(spoilt) == "list" or spoilt.endswith(":news"):
                continue
            client.delete(spoilt)
            client.rpush(spoilt, "not ours")
        before = dump(driver)
        try:
            driver.run(driver.store._connections.run(name, keys, words))
        except StoreError:
            refused += 1
            assert dump(driver) == before, spoilt
        else:
            assert dump(driver)[spoilt] == ["not ours"]
    assert refused > 3
