"""Answers that our server sends with one write: when it may, and what a request leaves in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from holdfast.http import protocol
from holdfast.http.parsing import LARGE_BYTES, HeaderTable, Incoming
from tests.http.kit import shop
from tests.http.real import raw, served

REQUESTS = 200
ROOT = Path(__file__).resolve().parents[2]
HOST = (b"host", b"localhost")
LENGTH = [(b"content-length", b"2")]


class Written(SimpleNamespace):
    """A transport that keeps what is written."""

    def write(self, data):
        self.data += data


def cycle(*headers, method="GET"):
    """A request on an old version of uvicorn: the connection is kept, whatever the client says."""
    return RequestResponseCycle(
        scope={"method": method, "headers": [HOST, *headers]},
        transport=Written(data=b""),
        flow=SimpleNamespace(write_paused=False),
        logger=None,
        access_logger=None,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


def test_an_answer_is_written_at_once():
    asked = cycle((b"connection", b"keep-alive"))
    assert protocol._sent_at_once(asked.send, 200, LENGTH, b"{}")
    assert asked.transport.data.endswith(b"content-length: 2\r\n\r\n{}")
    assert not protocol._sent_at_once(asked.send, 200, LENGTH, b"{}")  # it was answered


@pytest.mark.parametrize("said", [b"close", b"Close", b"te, CLOSE"])
def test_a_client_that_asks_to_close_is_answered_by_uvicorn(said):
    asked = cycle((b"connection", b"te"), (b"connection", said))
    assert not protocol._sent_at_once(asked.send, 200, LENGTH, b"{}")
    assert asked.transport.data == b""


def test_a_large_answer_and_one_through_a_middleware_are_sent_by_uvicorn():
    asked = cycle()

    async def send(message):
        await asked.send(message)

    assert not protocol._sent_at_once(asked.send, 200, LENGTH, b"x" * (LARGE_BYTES + 1))
    assert not protocol._sent_at_once(send, 200, LENGTH, b"{}")
    assert asked.transport.data == b""


def test_a_connection_is_closed_when_the_client_asks_for_it():
    with served(shop(), open=True) as (port, _):
        began = time.monotonic()
        answer = raw(port, b"GET /runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", seconds=5)
    assert b"\r\nconnection: close\r\n" in answer.lower()
    assert time.monotonic() - began < 4


GARBAGE = """
import gc, http.client, json
from tests.http.kit import shop
from tests.http.real import served

body = json.dumps({"type": "shop.nothing.v1"})
with served(shop(), open=True) as (port, _):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def post(times):
        for _ in range(times):
            link.request("POST", "/runs", body, {"content-type": "application/json"})
            answer = link.getresponse()
            answer.read()
            assert answer.status == 201

    post(20)
    gc.collect()
    gc.disable()
    post(%d)
    print(gc.collect())
    link.close()
"""


@pytest.mark.spec("HTTP-4")
def test_a_request_leaves_nothing_to_the_garbage_collector():
    # In a process of its own: threads of other tests may leave garbage here at any time.
    command = [sys.executable, "-c", GARBAGE % REQUESTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < REQUESTS / 2


def test_headers_are_found_by_any_case_also_in_an_iterator():
    table = HeaderTable(iter([(b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3")]))
    assert (table.get("X-A"), table.get("x-b"), table["X-B"], table.get("x-c", "none")) == (
        "1",
        "2",
        "2",
        "none",
    )
    assert ("X-A" in table, "x-b" in table, "X-C" in table) == (True, True, False)
    assert (table.getlist("X-A"), table.getlist("X-B"), table.getlist("x-c")) == (["1", "3"], ["2"], [])
    assert HeaderTable(iter([(b"x-a", b"1")])).getlist("X-A") == ["1"]


def test_a_request_notes_the_end_of_its_body():
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.request"}])

    async def receive():
        return next(messages)

    request = Incoming({"type": "http", "headers": [(b"content-length", b"1")]}, receive)
    asyncio.run(request.receive())
    assert not request.is_complete
    asyncio.run(request.receive())
    assert request.is_complete


def test_a_refused_connection_has_an_id_like_any_other_request():
    _, headers = protocol._problem()
    id_ = dict(headers)[b"x-request-id"].decode()
    assert len(id_) == 32
    assert abs(int(id_[:16], 16) / 1e6 - time.time()) < 60
