"""Large answers that their clients do not take: they are bounded for the whole process."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from functools import wraps

import pytest
from starlette.responses import Response

import holdfast as hf
from holdfast.http.parsing import LARGE_BYTES
from holdfast.http.protocol import BoundedProtocol
from holdfast.http.streams import ABORT
from holdfast.http.unsent import Unsent
from holdfast.world import RealWorld
from tests.http.kit import shop
from tests.http.real import ask, served

LARGE = 4 * LARGE_BYTES


class Client:
    """A client that takes parts of an answer only when it is told to."""

    def __init__(self, *, takes=0, has_abort=True):
        self.got, self.is_gone, self._may_take = [], asyncio.Event(), asyncio.Semaphore(takes)
        extensions = {ABORT: {"call": self.is_gone.set}} if has_abort else {}
        self.scope = {"type": "http", "extensions": extensions}

    def take(self, parts=1000):
        for _ in range(parts):
            self._may_take.release()

    async def send(self, message):
        waits = [asyncio.ensure_future(one) for one in (self._may_take.acquire(), self.is_gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if not self.is_gone.is_set():
            self.got.append(message)

    async def receive(self):
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self):
        return b"".join(one.get("body", b"") for one in self.got)


def answering(unsent, client, tenant, size=LARGE):
    answer = unsent.answer(Response(b"x" * size), tenant, client.scope, client.receive, client.send)
    return asyncio.create_task(answer)


def in_a_loop(test):
    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture
def small_buffers(monkeypatch):
    """Let the system keep little of an answer, however much this machine allows it."""
    made = BoundedProtocol.connection_made

    def connection_made(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGE_BYTES)
        made(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", connection_made)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.spec("HTTP-4")
@in_a_loop
async def test_an_answer_counts_until_its_client_has_taken_it():
    unsent, client = Unsent(RealWorld()), Client(takes=2)  # the head and one part
    task = answering(unsent, client, "acme")
    await settled()
    assert unsent.size == LARGE
    client.take()
    await task
    assert (unsent.size, client.body) == (0, b"x" * LARGE)
    assert [one.get("more_body") for one in client.got[1:]] == [True, True, True, False]
    await answering(unsent, Client(takes=2), "acme", LARGE_BYTES)  # a small one is not counted
    assert unsent.size == 0


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("has_abort", [True, False])
@in_a_loop
async def test_the_tenant_with_the_most_unsent_bytes_makes_room(has_abort, caplog):
    unsent = Unsent(RealWorld(), 4 * LARGE)
    beta = Client()
    waiting = [answering(unsent, beta, "beta")]
    acme = [Client(has_abort=has_abort) for _ in range(5)]
    for one in acme:
        waiting.append(answering(unsent, one, "acme"))
        await settled()
        assert unsent.size <= unsent.most
    assert [task.done() for task in waiting] == [False, True, True, False, False, False]  # the oldest of acme
    assert [one.is_gone.is_set() for one in acme] == [has_abort, has_abort, False, False, False]
    assert len([one for one in caplog.messages if "were dropped" in one]) == 1  # once a minute
    for one in (beta, *acme):
        one.take()
    await asyncio.gather(*waiting)
    assert [len(one.body) for one in (beta, *acme)] == [LARGE, 0, 0, LARGE, LARGE, LARGE]
    assert unsent.size == 0


@pytest.mark.spec("HTTP-4")
@in_a_loop
async def test_parts_of_streams_count_too():
    unsent, client = Unsent(RealWorld()), Client(takes=1)
    message = {"type": "http.response.body", "body": b"x" * LARGE, "more_body": True}
    task = asyncio.create_task(unsent.part(message, "acme", client.scope, client.send))
    await settled()
    assert unsent.size == LARGE
    client.take()
    await task
    assert (unsent.size, client.body) == (0, b"x" * LARGE)
    assert all(one["more_body"] for one in client.got)


@pytest.mark.spec("HTTP-4")
@in_a_loop
async def test_the_same_bytes_for_many_clients_count_once():
    unsent, clients = Unsent(RealWorld()), [Client() for _ in range(3)]
    message = {"type": "http.response.body", "body": b"x" * LARGE, "more_body": True}
    tasks = [asyncio.create_task(unsent.part(message, "acme", one.scope, one.send)) for one in clients]
    await settled()
    assert unsent.size == LARGE
    clients[0].take()
    await tasks[0]
    assert unsent.size == LARGE
    for one in clients[1:]:
        one.take()
    await asyncio.gather(*tasks)
    assert unsent.size == 0


@pytest.mark.spec("HTTP-4")
@in_a_loop
async def test_the_rest_of_an_answer_is_dropped_when_the_server_stops(monkeypatch):
    monkeypatch.setattr("holdfast.http.unsent.STOP_SECONDS", 0.0)
    unsent, client = Unsent(RealWorld()), Client()
    task = answering(unsent, client, "acme")
    await settled()
    unsent.stop()
    await asyncio.wait_for(task, 5)
    assert (unsent.size, client.is_gone.is_set()) == (0, True)


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.usefixtures("small_buffers")
def test_readers_that_take_nothing_hold_a_bounded_number_of_bytes():
    app, found = shop(), {}

    def kept(api):
        found["unsent"] = api.api.unsent
        api.api.unsent.most = 12 * 2**20
        return api

    with served(app, wrap=kept, open=True) as (port, call), ExitStack() as links:
        call(app.start, "shop.quick.v1", "x" * (4 * 2**20 - 100), key="large")
        unsent, asks = found["unsent"], b"GET /runs?values=true HTTP/1.1\r\nhost: localhost\r\n\r\n"
        silent = []
        for _ in range(12):
            link = links.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.settimeout(10)
            link.connect(("127.0.0.1", port))
            link.sendall(asks)
            link.recv(1)  # the answer has begun
            silent.append(link)
            assert unsent.size <= 12 * 2**20
        status, _, page = ask(port, "GET", "/runs?values=true")
        assert (status, len(page["items"][0]["params"])) == (200, 4 * 2**20 - 100)
        assert _is_dropped(silent[0])
        assert not _is_dropped(silent[-1])


@pytest.mark.spec("HTTP-2")
@pytest.mark.slow
@pytest.mark.usefixtures("small_buffers")
def test_a_large_entry_is_in_memory_once_however_many_follow_its_run():
    app, found = hf.App("memory://"), {}

    @app.workflow("shop.loud.v1")
    async def loud(ctx):
        ctx.log("large", value="x" * (3 * 2**20))
        await ctx.await_event("never")

    async def waits(run):
        async with app.worker(poll=0.01):
            while (await app.known(run)).status != "waiting":  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)

    def kept(api):
        found["unsent"] = api.api.unsent
        return api

    with served(app, wrap=kept, open=True) as (port, call), ExitStack() as links:
        run = call(app.start, "shop.loud.v1").id
        asks = f"GET /runs/{run}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        for _ in range(5):
            link = links.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.settimeout(10)
            link.connect(("127.0.0.1", port))
            link.sendall(asks.encode())
            link.recv(1)
        call(waits, run)
        until = time.monotonic() + 10
        while len(found["unsent"].waiting) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(found["unsent"].waiting) == 5
        assert found["unsent"].size < 4 * 2**20


def _is_dropped(link):
    try:
        while part := link.recv(2**20):
            if part.endswith(b"}"):
                return False
    except ConnectionError:
        pass
    return True
