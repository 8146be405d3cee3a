"""Connections: every call ends in time, a cancel is never swallowed, and each call gets its own answers."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import StoreError, Unavailable
from holdfast.stores.redis import RedisStore, connections, pool
from holdfast.stores.redis.address import parsed
from holdfast.stores.redis.connections import Connections
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.pool import Pool
from holdfast.stores.redis.snapshot import Snapshot
from servers.redis_store import server

PING = [("PING",)]


async def cancelled_at(store, turns):
    """Cancel a call after so many turns of the event loop. Return whether it was under way, and whether it
    was cancelled."""
    call = asyncio.ensure_future(store.due(("shop.order.v1",)))
    for _ in range(turns):
        await asyncio.sleep(0)
    is_under_way = call.cancel()
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    return is_under_way, isinstance(outcome, asyncio.CancelledError)


@pytest.mark.slow
@pytest.mark.spec("STORE-3")
def test_a_cancel_of_a_call_is_never_swallowed():
    """Otherwise a worker that stops would wait for its keeper for ever."""

    async def main():
        store = RedisStore(server().url("cancels"))
        await store.open()
        seen = [await cancelled_at(store, turns) for turns in range(1, 40) for _ in range(3)]
        await store.close()
        return seen

    seen = asyncio.run(main())
    assert (True, True) in seen
    assert (True, False) not in seen


@pytest.mark.spec("STORE-3")
def test_a_connection_that_was_dropped_in_the_middle_gives_no_answer_to_the_next_call():
    async def main():
        store = RedisStore(server().url("cancels"))
        await store.open()
        for turns in range(1, 30):
            await cancelled_at(store, turns)
            assert (await store.stats()).undelivered == 0
        await store.close()

    asyncio.run(main())


@pytest.mark.spec("STORE-3")
@pytest.mark.parametrize("links", [1, 4])
def test_calls_that_share_a_connection_get_their_own_answers_also_when_others_are_cancelled(
    calling, monkeypatch, links
):
    monkeypatch.setattr(connections, "LINKS", links)

    async def echo(all_of, number):
        words = [f"{number}-{part}" for part in range(3)]
        assert await all_of.ask([("ECHO", word) for word in words]) == words
        return number

    async def work(all_of):
        for _ in range(10):
            calls = [asyncio.ensure_future(echo(all_of, number)) for number in range(60)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for call in calls[::3]:
                call.cancel()
            said = await asyncio.gather(*calls, return_exceptions=True)
            assert said[1::3] == list(range(1, 60, 3))
            assert said[2::3] == list(range(2, 60, 3))

    calling(server().url("echo"), work)


@pytest.mark.spec("STORE-3")
def test_many_calls_at_once_open_few_connections(calling, own_server):
    async def work(all_of):
        await asyncio.gather(*(all_of.ask(PING) for _ in range(500)))
        with own_server.client() as client:
            return len(client.client_list()) - 1

    assert 1 <= calling(own_server.url(), work) <= connections.LINKS


@pytest.mark.spec("STORE-3")
def test_a_server_that_stands_still_is_given_up_at_the_deadline_and_used_again_when_it_goes_on(
    calling, own_server
):
    """The connections stay open, so only the deadline of the call ends it."""

    async def work(all_of):
        await all_of.ask(PING)
        own_server.pause()
        try:
            began = time.monotonic()
            calls = [all_of.ask(PING), _log(all_of, "row"), all_of.ask(PING)]
            said = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(one, Unavailable) for one in said), said
            assert "has not answered within 0.1" in str(said[1]) + str(said[0])
            assert time.monotonic() - began < 2
        finally:
            own_server.go_on()
        all_of.call_seconds = 10
        return await all_of.ask(PING)

    assert calling(own_server.url(), work, call_seconds=0.1) == ["PONG"]


@pytest.mark.spec("STORE-3")
def test_a_call_after_a_cancelled_one_does_not_wait_on_the_same_dead_connection(calling, own_server):
    """A renewal is cancelled after a part of its lease, so that the second try is in time."""

    async def work(all_of):
        await all_of.ask(PING)
        (before,) = next(iter(all_of._pools.values()))._links
        own_server.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await all_of.ask(PING)
        own_server.go_on()
        await all_of.ask(PING)
        return before.is_over, before in next(iter(all_of._pools.values()))._links

    assert calling(own_server.url(), work) == (True, False)


async def _log(all_of, row):
    """Write one row of the trail by the script save."""
    snapshot = Snapshot(Names(all_of.address.prefix), lambda: 1)
    snapshot.log("trail", snapshot.names.trail, row)
    return await all_of.run("save", *snapshot.packed())


class Proxy:
    """A proxy before a server. It passes the word `loses` on, and loses the answer, once."""

    def __init__(self, target, path):
        self.target, self.path, self.loses = str(target), path, b""
        self.unanswered = 0  # so many of the next connections are taken, and nobody answers them
        self.writers, self.pairs = [], []

    @asynccontextmanager
    async def serve(self):
        async with await asyncio.start_unix_server(self.pair, self.path):
            yield
            for writer in self.writers:
                writer.close()
            await asyncio.gather(*self.pairs, return_exceptions=True)

    async def pair(self, reader, writer):
        if self.unanswered:
            self.unanswered -= 1
            self.writers.append(writer)
            await reader.read()
            return
        theirs, ours = await asyncio.open_unix_connection(self.target)
        self.writers += (writer, ours)
        self.pairs.append(asyncio.current_task())
        lost = asyncio.Event()
        await asyncio.gather(
            self.there(reader, ours, lost), self.back(theirs, writer, lost), return_exceptions=True
        )

    async def there(self, reader, ours, lost):
        while data := await reader.read(65536):
            if self.loses and self.loses in data:
                self.loses = b""
                lost.set()
            ours.write(data)
        ours.close()

    async def back(self, theirs, writer, lost):
        while data := await theirs.read(65536):
            if lost.is_set():
                break
            writer.write(data)
        writer.close()


@pytest.fixture
def between(own_server, tmp_path_factory):
    """A proxy before the test's own server."""
    return Proxy(own_server.socket, str(tmp_path_factory.mktemp("p") / "s"))


@pytest.mark.spec("STORE-3")
def test_a_write_whose_answer_is_lost_is_unavailable_and_not_sent_twice(calling, own_server, between):
    """It may have been carried out: the engine asks again, by fence and number."""

    async def work(all_of):
        async with between.serve():
            await _log(all_of, "one")
            between.loses = b"EVALSHA"
            with pytest.raises(Unavailable):
                await _log(all_of, "two")
            await _log(all_of, "three")
            (rows,) = await all_of.ask([("ZRANGE", Names(all_of.address.prefix).trail, 0, -1)])
            await all_of.close()
            return rows

    url = own_server.url().replace(str(own_server.socket), between.path)
    assert calling(url, work) == ["1 one", "2 two", "3 three"]


@pytest.mark.spec("STORE-3")
def test_a_read_whose_answer_is_lost_is_sent_again(calling, own_server, between):
    async def work(all_of):
        async with between.serve():
            await all_of.ask(PING)
            between.loses = b"HLEN"
            answer = await all_of.ask([("HLEN", "{holdfast}:none")])
            await all_of.close()
            return answer, between.loses

    url = own_server.url().replace(str(own_server.socket), between.path)
    assert calling(url, work) == ([0], b"")


@pytest.mark.spec("STORE-3")
def test_a_connection_that_nobody_answers_is_given_up_and_replaced(calling, own_server, between):
    """A load balancer may take a connection that it has no server for. Later ones may reach a server."""

    async def work(all_of):
        async with between.serve():
            between.unanswered = 1
            with pytest.raises(Unavailable, match="does not answer in time"):
                await all_of.ask(PING)
            answer = await all_of.ask(PING)
            await all_of.close()
            return answer

    url = own_server.url().replace(str(own_server.socket), between.path) + "&socket_connect_timeout=0.5"
    assert calling(url, work, call_seconds=5) == ["PONG"]


@pytest.mark.spec("STORE-3")
def test_a_write_notices_that_the_server_has_closed_an_idle_connection(calling, own_server, monkeypatch):
    """Servers close idle connections. A write on one would count as unknown, though nothing has happened."""
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)

    async def work(all_of):
        for number in range(5):
            await _log(all_of, f"row {number}")
            with own_server.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
        return True

    assert calling(own_server.url(), work)


@pytest.mark.spec("STORE-3")
def test_between_tries_to_connect_there_are_growing_pauses(monkeypatch):
    """A server that comes back must not be met by thousands of connects at once."""
    monkeypatch.setattr(pool, "AGAIN_SECONDS", 0.005)

    async def main():
        loop, tries = asyncio.get_running_loop(), []

        async def opened():
            tries.append(loop.time())
            raise ConnectionRefusedError("no")

        refusing = Pool(opened, opened, 4)
        for _ in range(5):
            calls = await asyncio.gather(*(refusing.link() for _ in range(10)), return_exceptions=True)
            assert all(isinstance(one, ConnectionRefusedError) for one in calls)
        return [after - before for before, after in itertools.pairwise(tries)]

    pauses = asyncio.run(main())
    assert len(pauses) == 4
    assert all(pause >= 0.005 * 2**number for number, pause in enumerate(pauses))


class Busy:
    """A connection with calls under way."""

    is_usable, load, idle_seconds = True, 1, 0.0


@pytest.mark.spec("STORE-3")
def test_where_no_further_connection_can_be_had_calls_share_a_busy_one():
    """A server at its `maxclients` serves those that it has."""

    async def main():
        links = [Busy()]

        async def opened():
            if links:
                return links.pop()
            raise ConnectionError("max number of clients reached")

        pool = Pool(opened, opened, 4)
        first = await pool.link()
        async with asyncio.timeout(1):
            return [await pool.link() is first for _ in range(20)]

    assert asyncio.run(main()) == [True] * 20


@pytest.mark.spec("STORE-3")
def test_a_forked_child_has_connections_of_its_own_and_leaves_those_of_its_parent_alone():
    """One socket in two processes would mix the answers of both."""
    loop = asyncio.new_event_loop()
    all_of = Connections(parsed(server().url("fork")))
    all_of.is_open = True

    def called():
        return loop.run_until_complete(all_of.ask([("CLIENT", "ID")]))

    before = called()
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            mine = called()
            gc.collect()
            outcome = 0 if mine != before else 2
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert called() == before
    loop.run_until_complete(all_of.close())
    loop.close()


@pytest.mark.spec("STORE-3")
def test_a_server_that_refuses_for_now_is_asked_again_until_the_deadline(calling, own_server):
    """It is a replica for a moment, as in a failover: nothing was carried out, so a write may be repeated."""

    async def work(all_of):
        await _log(all_of, "one")
        with own_server.client() as client:
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(Unavailable, match="READONLY"):
                await _log(all_of, "never")
            all_of.call_seconds = 10
            written = asyncio.ensure_future(_log(all_of, "two"))
            await asyncio.sleep(0.02)
            assert not written.done()
            client.replicaof("NO", "ONE")
            await written
            return client.zrange("{holdfast}:trail", 0, -1)

    rows = calling(own_server.url(), work, call_seconds=0.1)
    assert [row.partition(" ")[2] for row in rows] == ["one", "two"]


@pytest.mark.spec("STORE-3")
def test_a_store_that_is_not_open_refuses_calls():
    with pytest.raises(Unavailable, match="not open"):
        asyncio.run(Connections(parsed(server().url("closed"))).ask(PING))


@pytest.mark.spec("STORE-3")
def test_errors_of_commands_are_ours_and_the_connection_stays(calling):
    async def work(all_of):
        with pytest.raises(StoreError, match="unknown command"):
            await all_of.ask([("PING",), ("NOSUCH",), ("PING",)])
        return await all_of.ask([("ECHO", "next")])

    assert calling(server().url("errors"), work) == ["next"]
