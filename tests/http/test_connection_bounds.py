"""Connections: bounds on trailers, on bodies that nobody reads, and on clients that take no answer."""

from __future__ import annotations

import socket
import time

import pytest

from holdfast.http import protocol
from tests.http.kit import shop
from tests.http.real import raw, served

CHUNKED = (
    b"%s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def port():
    with served(shop()) as (port, _):
        yield port


def _sent_until_closed(port, head, part, most=4 * 2**20):
    """Send a head, and one part again and again; return how many bytes the server took, and the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(head)
        sent, answer = 0, b""
        try:
            while sent < most:
                link.sendall(part)
                sent += len(part)
                time.sleep(0.001)
            while more := link.recv(65536):
                answer += more
        except ConnectionError:
            pass
        return sent, answer


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "part"),
    [(b"0\r\n", b"x: " + b"y" * 8000 + b"\r\n"), (b"0\r\nx: ", b"y" * 8000), (b"1;", b"y" * 8000)],
)
def test_trailers_and_extensions_of_chunks_are_bounded(port, begin, part, monkeypatch):
    monkeypatch.setattr("holdfast.http.parsing.REST_SECONDS", 60.0)  # the bound on bytes comes first
    sent, _ = _sent_until_closed(port, CHUNKED % b"POST /runs" + begin, part)
    assert sent < 2 * 2**20


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_trailers_are_no_headers(port):
    head = CHUNKED % b"POST /runs"
    answer = raw(port, head + b"0\r\nx-odd: 1\r\n\r\n" + HEALTH)
    assert [b"401 Unauthorized" in answer, b"200 OK" in answer] == [True, True]


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.parametrize(
    "what", [b"POST /runs", b"DELETE /runs/x", b"POST /nothing", b"PUT /runs", b"GET /healthz"]
)
def test_an_answer_before_the_body_ends_the_connection(port, what):
    began = time.monotonic()
    answer = raw(port, CHUNKED % what + b"1\r\n{\r\n", seconds=20.0)
    assert b"connection: close" in answer
    assert time.monotonic() - began < 10
    sent, _ = _sent_until_closed(port, CHUNKED % what, b"2000\r\n" + b" " * 0x2000 + b"\r\n", 40 * 2**20)
    assert sent < 30 * 2**20


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_a_refusal_reaches_a_client_that_sends_its_whole_body(port):
    head = b"POST /runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000000\r\n\r\n"
    answer = raw(port, head, b" " * 3_000_000, HEALTH, pause=0.05)
    assert [b"401 Unauthorized" in answer, b"200 OK" in answer] == [True, True]


class _Transport:
    """A transport with 1000 bytes that the client has not taken."""

    def __init__(self):
        self.size, self.is_aborted = 1000, False

    def get_write_buffer_size(self):
        return self.size

    def abort(self):
        self.is_aborted = True


@pytest.mark.spec("HTTP-4")
def test_a_client_that_takes_nothing_is_dropped_and_a_slow_one_is_not():
    timers = []

    class Loop:
        def call_later(self, seconds, verb, *args):
            timers.append((seconds, verb, args))

    one = protocol.BoundedProtocol.__new__(protocol.BoundedProtocol)
    one.transport, one.loop, one._stall_timer = _Transport(), Loop(), None
    one._wait_for_client()
    one.transport.size = 900
    seconds, verb, args = timers.pop()
    verb(*args)
    assert not one.transport.is_aborted
    seconds, verb, args = timers.pop()
    verb(*args)
    assert one.transport.is_aborted
    assert seconds == protocol.STALL_SECONDS
    assert not timers
