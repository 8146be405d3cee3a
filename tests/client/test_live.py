"""`client.follow`: the trail as a stream, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from uuid import uuid4

import pytest

import holdfast as hf
from holdfast.client.streams import Event, events
from tests.client.kit import Serving


async def collected(stream):
    return [one async for one in stream]


@pytest.mark.spec("HTTP-9", "HTTP-2")
async def test_the_trail_of_a_run_is_followed_to_its_end(server):
    async with server.client() as client:
        handle = await client.start("shop.order.v1", {"id": 1})
        following = asyncio.ensure_future(collected(client.follow(handle.id)))
        await asyncio.sleep(0.3)
        await client.emit("paid:1", "\u2028")
        seen = await asyncio.wait_for(following, 10)
        assert seen == list(server.run(server.app.trail(handle.id)))
        assert seen[-1].type == "succeeded"
        assert await collected(client.follow(handle.id, seen[-2].seq)) == seen[-1:]
        assert await collected(client.follow(handle.id, seen[-1].seq)) == []
        assert server.run(collected(server.app.follow(handle.id))) == seen
        assert server.run(collected(server.app.of("default").follow(handle.id))) == seen


@pytest.mark.spec("HTTP-9")
async def test_a_chain_is_followed_from_run_to_run(server):
    async with server.client() as client:
        handle = await client.start("shop.chain.v1", 2)
        seen = await asyncio.wait_for(collected(client.follow(handle.id)), 10)
        present = await client.present(handle.id)
        assert {handle.id, present.id} <= {one.run for one in seen}
        assert (seen[-1].run, seen[-1].type) == (present.id, "succeeded")
        assert await handle.result(10) == "done"


@pytest.mark.spec("HTTP-9")
@pytest.mark.slow
async def test_nothing_is_missed_and_nothing_comes_twice_over_restarts(server):
    async with server.client(timeout=20) as client:
        handle = await client.start("shop.slow.v1", 60)
        following = asyncio.ensure_future(collected(client.follow(handle.id)))
        every = asyncio.ensure_future(taken(client.follow(None), 100))
        for _ in range(3):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.begin)
        seen = await asyncio.wait_for(following, 30)
        assert seen == list(await asyncio.to_thread(server.run, all_of(server, handle.id)))
        assert all(one.seq < two.seq for one, two in pairwise(seen))
        assert await asyncio.wait_for(every, 30) == seen[:100]


async def all_of(server, run):
    return await server.app.trail(run)


async def taken(stream, count):
    found = []
    async for one in stream:
        found.append(one)
        if len(found) == count:
            break
    await stream.aclose()
    return found


@pytest.mark.spec("HTTP-9")
async def test_a_run_that_is_unknown_or_deleted_and_a_server_that_stays_away(server):
    async with server.client(timeout=1) as client:
        with pytest.raises(hf.UnknownRun):
            await collected(client.follow(uuid4()))
        handle = await client.start("shop.order.v1", {"id": 1})
        following = asyncio.ensure_future(collected(client.follow(handle.id)))
        await asyncio.sleep(0.2)
        await client.delete(handle.id)
        with pytest.raises(hf.UnknownRun):
            await asyncio.wait_for(following, 10)
        other = await client.start("shop.order.v1", {"id": 2})
        following = asyncio.ensure_future(collected(client.follow(other.id)))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.stop)
        with pytest.raises(hf.Unavailable):
            await asyncio.wait_for(following, 10)


async def test_a_key_without_the_scope_is_refused_at_once():
    with Serving(open=False) as server:
        key = server.key("runs.write")
        async with server.client(key=key) as client:
            handle = await client.start("shop.quick.v1", 1)
            with pytest.raises(hf.NotAllowed, match=r"runs\.read"):
                await collected(client.follow(handle.id))


@pytest.mark.spec("HTTP-9")
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_events_are_read_however_they_are_cut(size):
    sent = (
        ": comment\n\nretry: 1000\n\n"
        'id: 1\ndata: {"a":"\u2028\u0085é"}\n\nevent: end\ndata: one\ndata: two\n\n'
        "event: odd\n\ndata:no space\r\n\r\ndata: not complete"
    ).encode()

    async def parts():
        for n in range(0, len(sent), size):
            yield sent[n : n + size]

    assert [one async for one in events(parts())] == [
        Event("message", '{"a":"\u2028\u0085é"}'.encode()), Event("end", b"one\ntwo"), Event("message",
        b"no space")
    ]  # fmt: skip
