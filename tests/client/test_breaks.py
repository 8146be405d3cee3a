"""Streams that break: a quiet one, those that end at once, a server that does not answer."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast as hf
from holdfast.client import streams
from tests.client.kit import Serving
from tests.client.test_live import collected, taken

STREAM = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}


class Broken:
    """In front of the API: the first streams are `streams`, one function each; the last one is repeated."""

    def __init__(self, *streams, real_after=None):
        self.streams, self.real_after, self.opened = streams, real_after, []

    def __call__(self, api):
        async def app(scope, receive, send):
            streaming = (b"accept", b"text/event-stream") in scope.get("headers", ())
            count = len(self.opened)
            if not streaming or (self.real_after is not None and count >= self.real_after):
                return await api(scope, receive, send)
            self.opened.append(time.monotonic())
            return await self.streams[min(count, len(self.streams) - 1)](send)

        return app


def part(text):
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


async def at_once(send):
    await send(STREAM)
    await send(part("retry: 1000\n\nevent: error\ndata: no\n\n"))
    raise ConnectionResetError("the test breaks the stream")


def quiet(seconds):
    async def stream(send):
        await send(STREAM)
        await send(part("retry: 1000\n\n"))
        await asyncio.sleep(seconds)
        raise ConnectionResetError("the test breaks the stream")

    return stream


async def no_answer(_send):
    await asyncio.sleep(20)


@pytest.mark.spec("HTTP-9")
async def test_a_quiet_stream_that_breaks_is_opened_again():
    """The stream was open for longer than the timeout of the client: that is no absence of the server."""
    broken = Broken(quiet(2.5), at_once, real_after=2)
    with Serving(worker=True, wrap=broken) as server:
        async with server.client(timeout=2) as client:
            handle = await client.start("shop.quick.v1", 1)
            seen = await asyncio.wait_for(collected(client.follow(handle.id)), 10)
            assert seen[-1].type == "succeeded"
            assert len(broken.opened) == 2


@pytest.mark.spec("HTTP-9")
async def test_the_time_of_a_short_stream_is_not_counted():
    broken = Broken(quiet(1), real_after=2)
    with Serving(worker=True, wrap=broken) as server:
        async with server.client(timeout=0.9) as client:
            handle = await client.start("shop.quick.v1", 1)
            seen = await asyncio.wait_for(collected(client.follow(handle.id)), 10)
            assert seen[-1].type == "succeeded"


@pytest.mark.spec("HTTP-9")
async def test_streams_that_all_end_at_once_are_given_up():
    broken = Broken(at_once)
    with Serving(wrap=broken) as server:
        async with server.client(timeout=1.5) as client:
            began = time.monotonic()
            with pytest.raises(hf.Unavailable):
                await asyncio.wait_for(collected(client.follow(None)), 10)
            assert time.monotonic() - began < 5
            assert 2 <= len(broken.opened) <= 8  # with longer and longer delays


@pytest.mark.spec("HTTP-9")
async def test_an_old_entry_again_and_again_is_no_progress():
    entry = (
        'id: 3\ndata: {"seq":3,"run":"0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10","type":"started",'
        '"at":"2026-01-01T00:00:00Z","data":{},"told":true}\n\n'
    )

    async def again(send):
        await send(STREAM)
        await send(part(entry))
        raise ConnectionResetError("the test breaks the stream")

    seen = []

    async def follow(client):
        async for one in client.follow(None):
            seen.append(one.seq)  # noqa: PERF401 - it ends with an error

    with Serving(wrap=Broken(again)) as server:
        async with server.client(timeout=1) as client:
            with pytest.raises(hf.Unavailable):
                await asyncio.wait_for(follow(client), 10)
    assert seen == [3]


@pytest.mark.spec("HTTP-9")
async def test_a_server_that_takes_the_request_and_does_not_answer():
    with Serving(wrap=Broken(no_answer)) as server:
        async with server.client(timeout=0.5) as client:
            began = time.monotonic()
            with pytest.raises(hf.Unavailable, match="did not answer in time"):
                await collected(client.follow(None))
            assert time.monotonic() - began < 5


@pytest.mark.spec("HTTP-9")
async def test_a_follower_that_stops_gives_its_connection_back(server):
    async with server.client() as client:
        handle = await client.start("shop.order.v1", {"id": 1})
        await taken(client.follow(handle.id), 1)
        pool = client._transport._client(long=True)._transport._pool
        assert [one for one in pool.connections if not one.is_idle()] == []


async def test_an_event_of_many_lines_has_a_bound(monkeypatch):
    monkeypatch.setattr(streams, "EVENT_BYTES", 1000)

    async def parts():
        for _ in range(100):
            yield b"data: 12345678901234567890\n"

    with pytest.raises(hf.StoreError, match="an event of more than"):
        await collected(streams.events(parts()))
