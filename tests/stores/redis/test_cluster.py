"""A cluster: one node has all keys of a namespace, the store finds it, and follows it when it moves."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast.errors import StoreError, Unavailable
from holdfast.records import ANY, NewRun, RunFilter
from holdfast.stores.redis import RedisStore
from holdfast.testing.contract.driver import TYPE
from servers.plugin import started
from servers.redis_cluster import running_cluster
from servers.redis_store import cluster
from tests.stores.redis.test_connections import PING, _log

pytestmark = pytest.mark.slow


def prefix_of(node, name, where=None):
    """Return a prefix whose namespace is on this node."""
    return next(one for one in (f"{name}{n}" for n in range(100)) if (where or cluster()).owner(one) is node)


def rows_of(prefix, where=None):
    with (where or cluster()).client(prefix) as client:
        return [row.partition(" ")[2] for row in client.zrange(f"{{{prefix}}}:trail", 0, -1)]


@pytest.mark.spec("STORE-3")
def test_any_node_of_a_cluster_leads_to_the_node_that_has_the_namespace(calling):
    async def work(all_of):
        await _log(all_of, "row")
        return all_of.nodes.is_cluster

    for number, asked in enumerate(cluster().nodes):
        for owner in cluster().nodes:
            prefix = prefix_of(owner, f"any{number}-")
            assert calling(asked.url(prefix), work)
            assert rows_of(prefix) == ["row"]


@pytest.mark.spec("STORE-3")
def test_a_namespace_that_has_moved_is_followed_by_reads_and_writes_and_scripts_are_sent_again(calling):
    """The new node has no script yet, and the connections lead to the old one."""
    prefix = prefix_of(cluster().nodes[0], "moved")

    async def work(all_of):
        await _log(all_of, "one")
        cluster().move(prefix, cluster().other(prefix))
        await _log(all_of, "two")
        cluster().move(prefix, cluster().other(prefix))
        return await all_of.ask(
            [("ZCARD", f"{{{prefix}}}:trail"), ("HGET", f"{{{prefix}}}:numbers", "schema")]
        )

    assert calling(cluster().url(prefix), work) == [2, "1"]
    assert rows_of(prefix) == ["one", "two"]


@pytest.mark.spec("STORE-3")
def test_while_keys_move_reads_follow_them_and_no_script_is_run(calling):
    """A script that runs then may find in its middle that a key is on the other node, and is not undone."""
    prefix = prefix_of(cluster().nodes[1], "between")
    keys = [f"{{{prefix}}}:k{number}" for number in range(20)]

    async def work(all_of):
        await _log(all_of, "one")
        with cluster().client(prefix) as client:
            for key in keys:
                client.set(key, key)
        target = cluster().other(prefix)
        cluster().begin_move(prefix, target)
        all_of.call_seconds = 0.1
        moved = 1
        while moved:
            assert await all_of.ask([("GET", key) for key in keys]) == keys
            with pytest.raises(Unavailable, match=r"TRYAGAIN|ASK"):
                await _log(all_of, "never")
            moved = cluster().move_keys(prefix, target, 9)
        all_of.call_seconds = 10
        waiting = asyncio.ensure_future(_log(all_of, "two"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        cluster().end_move(prefix, target)
        await waiting

    calling(cluster().url(prefix), work)
    assert rows_of(prefix) == ["one", "two"]


@pytest.mark.spec("STORE-3")
def test_nothing_is_lost_or_refused_for_good_while_a_namespace_moves():
    """Starts go on while the slot of the namespace moves to the next node, twice."""
    prefix = prefix_of(cluster().nodes[2], "live")

    async def main():
        store = RedisStore(cluster().url(prefix))
        await store.open()
        is_over, acknowledged = False, []

        async def start(first):
            number = first
            while not is_over or number < first + 50:
                run = NewRun(id=UUID(int=(7 << 76) | (2 << 62) | number), type=TYPE)
                try:
                    await store.start([run])
                except Unavailable:
                    continue
                acknowledged.append(run.id)
                number += 1

        starting = [asyncio.ensure_future(start(1 + number * 1_000_000)) for number in range(4)]
        for _ in range(2):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(cluster().move, prefix, cluster().other(prefix))
        await asyncio.sleep(0.05)
        is_over = True
        await asyncio.gather(*starting)
        lost = [run for run in acknowledged if await store.get(run, ANY) is None]
        found, last = 0, None
        while page := await store.list(RunFilter(), 500, after=last):
            found, last = found + len(page), page[-1].id
        await store.close()
        return acknowledged, lost, found

    acknowledged, lost, found = asyncio.run(main())
    assert lost == []
    assert found == len(acknowledged) >= 200


@pytest.mark.spec("STORE-3")
def test_a_slot_that_a_server_moves_at_once_is_followed(calling):
    """Valkey 9 moves a slot by itself, and writes wait for no more than a moment."""
    program = cluster().program
    if program.kind != "valkey" or program.numbers < (9,):
        pytest.skip(f"{program.label} cannot move a slot at once")
    prefix = prefix_of(cluster().nodes[0], "at-once")
    source, target, slot = cluster().owner(prefix), cluster().other(prefix), cluster().slot(prefix)

    async def work(all_of):
        await _log(all_of, "0")
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
        number = 1
        while all_of.nodes.node != ("127.0.0.1", target.port):
            await _log(all_of, str(number))
            number += 1
        return number

    written = calling(cluster().url(prefix), work)
    cluster().moved(prefix, target)
    assert rows_of(prefix) == [str(number) for number in range(written)]


@pytest.mark.spec("STORE-3")
def test_a_store_goes_on_when_the_node_of_its_url_is_gone(calling):
    """It has learnt the other nodes. A node that is gone and has the namespace makes it unavailable."""
    with started(running_cluster()) as own:
        gone, stays, _ = own.nodes
        prefix = prefix_of(gone, "gone", own)

        async def work(all_of):
            await _log(all_of, "one")
            await all_of.leave()  # so that it connects again
            own.move(prefix, stays)
            gone.kill()
            await _log(all_of, "two")
            stays.kill()
            with pytest.raises(Unavailable):
                await _log(all_of, "three")
            stays.start()
            return await all_of.ask(PING)

        assert calling(gone.url(prefix), work) == ["PONG"]
        assert rows_of(prefix, own) == ["one", "two"]


@pytest.mark.spec("STORE-3")
def test_a_socket_of_a_node_that_does_not_have_the_namespace_is_refused_with_a_remedy(calling):
    node, owner = cluster().nodes[:2]
    url = f"unix://{node.socket}?prefix={prefix_of(owner, 'unix')}&durability=memory"

    async def work(all_of):
        with pytest.raises(StoreError, match="write redis://host:port instead of unix://"):
            await all_of.ask(PING)

    calling(url, work)


@pytest.mark.spec("STORE-3")
def test_a_socket_of_the_node_that_has_the_namespace_is_enough(calling):
    owner = cluster().nodes[1]
    prefix = prefix_of(owner, "socket")
    calling(f"unix://{owner.socket}?prefix={prefix}&durability=memory", lambda all_of: _log(all_of, "row"))
    assert rows_of(prefix) == ["row"]


@pytest.mark.spec("STORE-3")
def test_a_store_goes_on_when_a_node_does_not_answer_any_more(calling):
    """It stands still, as a host whose power is cut: no connection to it is refused. The namespace has moved
    before."""
    asked, stands, stays = cluster().nodes
    prefix = prefix_of(stands, "stands")

    async def work(all_of):
        await _log(all_of, "one")
        await all_of.leave()  # so that it connects again
        cluster().move(prefix, stays)
        stands.pause()
        try:
            await _log(all_of, "two")
        finally:
            stands.go_on()

    calling(f"{asked.url(prefix)}&socket_connect_timeout=0.5", work)
    assert rows_of(prefix) == ["one", "two"]
