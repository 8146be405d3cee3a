"""The number of connections is bounded: silent ones shut out nobody."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack

import pytest

from holdfast.http import connections
from holdfast.http.connections import Connections, connections_max, streams_within
from holdfast.world import RealWorld
from tests.http.certificates import certificate
from tests.http.kit import shop
from tests.http.real import ask, raw, served


class Link:
    def __init__(self):
        self.dropped = False

    def drop(self):
        self.dropped = True


@pytest.mark.spec("HTTP-4")
def test_the_longest_idle_connection_makes_room_for_a_new_one(caplog):
    open_, links = Connections(3, RealWorld()), [Link() for _ in range(5)]
    assert all(open_.made(one) for one in links[:3])
    open_.busy(links[0])
    open_.idle(links[0])  # idle since now, after the second one
    open_.busy(links[2])
    with caplog.at_level(logging.WARNING, "holdfast.http"):
        assert open_.made(links[3])
        assert [one.dropped for one in links] == [False, True, False, False, False]
        open_.busy(links[0])
        open_.busy(links[3])
        assert not open_.made(links[4])  # all have a request under way
    assert [one.message[:18] for one in caplog.records] == ["the server is full"]  # once a minute
    open_.lost(links[0])
    assert open_.made(links[4])


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_silent_connections_shut_out_nobody():
    with served(shop(), connections=20) as (port, _):
        silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(300)]
        for _ in range(3):
            assert ask(port, "GET", "/healthz")[0] == 200
        for one in silent:
            one.close()


def _silent(port):
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def _is_closed(link):
    try:
        return link.recv(1) == b""
    except ConnectionError:
        return True


def _secured(port, file):
    trusting = ssl.create_default_context(cafile=file)
    return trusting.wrap_socket(_silent(port), server_hostname="localhost")


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_handshakes_of_tls_are_bounded_and_shut_out_nobody(tmp_path):
    _, files = certificate(tmp_path)
    with served(shop(), connections=16, tls=files) as (port, _), ExitStack() as links:
        silent = [links.enter_context(_silent(port)) for _ in range(20)]
        assert all(_is_closed(one) for one in silent[:18])  # two may still begin TLS
        kept = [links.enter_context(_secured(port, files[0])) for _ in range(14)]
        for one in kept:  # a handshake that has ended is not counted twice
            one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_a_handshake_of_tls_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.2)
    _, files = certificate(tmp_path)
    with served(shop(), tls=files) as (port, _), _secured(port, files[0]) as kept, _silent(port) as silent:
        assert _is_closed(silent)
        kept.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert kept.recv(12) == b"HTTP/1.1 200"  # its handshake has ended


@pytest.mark.spec("HTTP-4")
@pytest.mark.slow
def test_a_server_whose_connections_are_all_busy_refuses_new_ones():
    with served(shop(), connections=2, open=True) as (port, _), ExitStack() as links:
        run = ask(port, "POST", "/runs", None, {"type": "shop.quick.v1", "delay": 3600})[2]["id"]
        head = (
            b"GET /runs/%s/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
            % run.encode()
        )
        for _ in range(2):
            one = links.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            one.sendall(head)
            assert one.recv(12) == b"HTTP/1.1 200"
        answer = raw(port)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b'"code":"server-full"' in answer
        assert one.recv(10)  # the streams go on


@pytest.mark.spec("HTTP-4")
def test_the_bounds_follow_the_limit_of_open_files():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024));"
        "from holdfast.http.connections import *;"
        "before = connections_max(); raise_file_limit(); most = connections_max(); s = streams_within(most);"
        "print(before, resource.getrlimit(resource.RLIMIT_NOFILE)[0], most, s.most, s.per_tenant, s.per_key)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["128", "1024", "768", "576", "288", "144"]
    assert connections_max() >= 1
    usual = streams_within(1_000_000)
    assert (usual.most, usual.per_tenant, usual.per_key) == (5000, 2500, 1000)
