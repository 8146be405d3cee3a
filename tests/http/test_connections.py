"""The head of a request has bounds in bytes and time; a connection that waits for nothing is left alone."""

from __future__ import annotations

import json
import socket
import time

import pytest

from holdfast.http import protocol
from tests.http.kit import shop
from tests.http.real import raw, served

GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with served(shop()) as (port, _):
        yield port


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.parametrize("part", [b"x: " + b"a" * 40_000, b"y: z\r\n" * 7_000, b"a" * 40_000 + b": x"])
def test_a_head_that_is_too_large_is_refused(port, part):
    for end in (b"\r\n\r\n", b""):  # whole, or never ending
        head, _, body = raw(port, GET + part + end).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert b"application/problem+json" in head
        assert json.loads(body)["code"] == "head-too-large"


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
@pytest.mark.parametrize("begin", [b"", b"G", GET, GET + b"x", b"\r\n"])
def test_a_head_that_never_ends_is_given_up(port, begin):
    began = time.monotonic()
    assert raw(port, begin, seconds=10) == b""
    assert time.monotonic() - began < 5


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_a_connection_that_rests_between_requests_is_kept(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        for _ in range(2):
            link.sendall(GET + b"\r\n")
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += link.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.6)
        link.sendall(GET)  # the next head never ends
        assert link.recv(65536) == b""
