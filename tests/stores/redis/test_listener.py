"""Hints: other processes hear of work at once; without them polls find it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast.records import ANY, Ask, NewRun
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.stores.redis import RedisStore, listener
from holdfast.stores.redis.address import parsed
from holdfast.stores.redis.listener import Listeners
from holdfast.testing.contract.driver import TYPE
from servers.redis_store import cluster, make, make_in_cluster, server


async def heard(act, *, holders=False, one=None, url=None):
    """Return True when a second store hears of what is done in the first."""
    one = one or make(None)
    two = RedisStore(url or server().url(one.address.prefix.rpartition("-")[2]), None)
    await one.open()
    await two.open()
    news, ready = asyncio.Event(), asyncio.Event()

    def hint():
        (news if ready.is_set() else ready).set()

    end = two.listen((lambda: None) if holders else hint, hint if holders else None)
    try:
        await asyncio.wait_for(ready.wait(), 5)  # it looks once when it is connected
        await act(one)
        await asyncio.wait_for(news.wait(), 5)
    finally:
        end()
        await two.close()
        await one.close()
    return True


async def start(store):
    await store.start([NewRun(id=_id(1), type=TYPE)])


def _id(number):
    return UUID(int=(7 << 76) | (2 << 62) | number)


@pytest.mark.spec("STORE-3")
def test_a_start_is_heard_by_other_stores():
    assert asyncio.run(heard(start))


@pytest.mark.spec("STORE-3", "CANC-6")
def test_a_cancel_of_a_leased_run_calls_its_holder():
    from tests.stores.redis.test_saving import claim_ask

    async def cancel(store):
        await start(store)
        await store.claim(claim_ask("w1"))
        await store.cancel(_id(1), ANY)

    assert asyncio.run(heard(cancel, holders=True))


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("node", [0, 1, 2])
def test_in_a_cluster_a_start_is_heard_at_every_node(node):
    """A message reaches all nodes, not only the one that has the namespace."""

    async def at_the_node():
        one = make_in_cluster(None)
        two = Listeners(parsed(cluster().nodes[node].url(one.address.prefix)))  # it knows no other node
        await one.open()
        calls = Calls(two)
        await calls.next()
        await start(one)
        await calls.next()
        await two.close()
        await one.close()

    asyncio.run(at_the_node())


class Calls:
    """The calls of a listener, to wait for the next one."""

    def __init__(self, listeners):
        self._called, self.holders = asyncio.Event(), 0
        self.end = listeners.listen(self._called.set, self._hold)

    def _hold(self):
        self.holders += 1

    async def next(self):
        await asyncio.wait_for(self._called.wait(), 5)
        self._called.clear()


@pytest.fixture
def listening(own_server, monkeypatch):
    """Function that runs a function of listeners and their calls, with short times."""
    monkeypatch.setattr(listener, "AGAIN_SECONDS", 0.01)

    def listen(work):
        async def main():
            listeners = Listeners(parsed(own_server.url()))
            listeners.alive_seconds = listeners.alive_limit_seconds = 0.05
            assert not listeners.hears
            calls = Calls(listeners)
            assert not listeners.hears
            await calls.next()
            assert listeners.hears
            try:
                await work(listeners, calls)
            finally:
                await listeners.close()

        asyncio.run(main())

    return listen


@pytest.mark.spec("STORE-3")
def test_a_listener_whose_connection_is_lost_says_so_and_looks_once_when_it_is_back(listening, own_server):
    async def work(listeners, calls):
        held = calls.holders
        with own_server.client() as client:
            client.client_kill_filter(_type="pubsub")
        await calls.next()  # polls come more often from now on
        assert not listeners.hears
        await calls.next()
        assert listeners.hears
        assert calls.holders == held + 1

    listening(work)


@pytest.mark.spec("STORE-3")
def test_a_listener_is_not_believed_when_the_server_gives_no_sign_of_life(listening, own_server):
    """The connection is open, and nothing comes: as when a cable is cut."""

    async def work(listeners, calls):
        own_server.pause()
        try:
            await calls.next()
            assert not listeners.hears
        finally:
            own_server.go_on()
        await calls.next()
        assert listeners.hears

    listening(work)


@pytest.mark.spec("STORE-3")
def test_a_silent_server_that_lives_is_believed_on(listening):
    """It answers when it is asked: the connection is not made anew."""

    async def work(listeners, calls):
        before = listeners._listeners[asyncio.get_running_loop()]._alive_at
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await calls.next()
        assert listeners.hears
        assert listeners._listeners[asyncio.get_running_loop()]._alive_at > before

    listening(work)


@pytest.mark.spec("STORE-3")
def test_a_listener_ends_with_its_last_hint_and_a_new_one_begins_again(listening, own_server):
    async def work(listeners, calls):
        calls.end()
        for _ in range(200):
            with own_server.client() as client:
                if not client.pubsub_numsub("{holdfast}:news")[0][1]:
                    break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("it still listens")
        assert not listeners.hears
        again = Calls(listeners)
        await again.next()
        assert listeners.hears

    listening(work)


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("turns", range(4))
def test_who_listens_while_the_last_listener_leaves_is_told(listening, own_server, turns):
    """The connection is being closed then, because nobody listens any more."""

    async def work(listeners, calls):
        calls.end()
        for _ in range(turns):
            await asyncio.sleep(0)
        again = Calls(listeners)
        for _ in range(10):  # until the first connection is closed
            await asyncio.sleep(0)
        again._called.clear()
        with own_server.client() as client:
            client.publish("{holdfast}:news", "work")  # on a new connection it is called anyway
        await again.next()
        assert listeners.hears
        again.end()

    listening(work)


@pytest.mark.spec("LEASE-6", "OPS-7")
@pytest.mark.parametrize(("fast", "lease", "hints"), [(True, 5.0, 1), (True, 30.0, 0), (False, 5.0, 1)])
def test_a_short_lease_is_a_hint(fast, lease, hints):
    """Idle keepers sleep for longer than that: without a hint they would find it long after its end. The
    machine rings for every claim.
    """
    one = make(None)
    one.fast, ask = fast, Ask(worker="w", types=(TYPE,), limit=1, lease_seconds=lease)
    assert one.traits.poll_seconds == HINTED_POLL_SECONDS

    async def main():
        await one.open()
        await start(one)
        count, ready = 0, asyncio.Event()

        def hint():
            nonlocal count
            count += ready.is_set()
            ready.set()

        end = one.listen(hint)
        await asyncio.wait_for(ready.wait(), 5)  # it looks once when it is connected
        assert len(await one.claim(ask)) == 1
        assert await one.claim(ask) == []
        await asyncio.sleep(0.2)  # to see that nothing more comes
        end()
        await one.close()
        return count

    assert asyncio.run(main()) == hints
