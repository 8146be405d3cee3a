"""The server for scrapes beside a worker: what it answers, what it bounds, and real processes."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.stores.memory import MemoryStore
from holdfast.telemetry import serving
from holdfast.telemetry.serving import MetricsServer
from tests.engine.measures.scraped import parsed

APP = """
import holdfast as hf

app = hf.App()


@app.workflow("shop.order.v1")
async def order(ctx):
    await ctx.step("a", lambda: 1)
"""


def get(url, path="/metrics"):
    """Return the status and the body of an answer."""
    try:
        with urllib.request.urlopen(url.replace("/metrics", path), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def sent(port, raw):
    """Send bytes, and return the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        one.sendall(raw)
        return b"".join(iter(lambda: one.recv(65536), b""))


@pytest.fixture
def app():
    return hf.App(MemoryStore(), name="test")


@pytest.mark.spec("OPS-2")
def test_metrics_and_health_are_served_and_nothing_else(app):
    with MetricsServer(app, 0) as server:
        status, body = get(server.url)
        assert (status, parsed(body)["holdfast_engine_errors_total",] >= 0) == (200, True)
        assert b"holdfast_store_up" not in body
        assert get(server.url, "/healthz") == (503, b"no worker\n")
        assert get(server.url, "/")[0] == get(server.url, "/metrics/x")[0] == 404
        assert sent(server.port, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
        head = sent(server.port, b"HEAD /metrics?a=b HTTP/1.1\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.endswith(b"\r\n\r\n")
    with pytest.raises(OSError, match="refused"):
        sent(server.port, b"x")


@pytest.mark.spec("OPS-2")
def test_the_store_is_shown_when_asked_for_and_health_says_that_a_worker_works(app):
    async def look(url):
        async with app.worker():
            return await asyncio.gather(asyncio.to_thread(get, url), asyncio.to_thread(get, url, "/healthz"))

    with MetricsServer(app, 0, store=True) as server:
        (_, body), health = asyncio.run(look(server.url))
    found = parsed(body)
    assert (found["holdfast_store_up",], found["holdfast_workers",]) == (1, 1)
    assert health == (200, b"ok\n")


@pytest.mark.spec("OPS-2")
def test_a_blocked_event_loop_of_the_worker_delays_no_scrape(app):
    """The scrape is answered while the loop is blocked; the block ends only after the answer."""

    async def work(url):
        async with app.worker():
            return get(url)  # blocks this event loop

    with MetricsServer(app, 0) as server:
        status, _ = asyncio.run(work(server.url))
    assert status == 200


def test_a_connection_that_sends_nothing_or_too_much_is_closed(app, monkeypatch):
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.05)
    with MetricsServer(app, 0) as server:
        assert sent(server.port, b"GET /metrics") == b""
        with pytest.raises(OSError) if sys.platform == "darwin" else _either():
            assert sent(server.port, b"GET /" + b"x" * 100_000) == b""
        assert get(server.url)[0] == 200


class _either:  # noqa: N801
    """The connection may be reset while we still send: both are an end."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, OSError)


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


@pytest.mark.spec("OPS-2")
def test_silent_connections_neither_stop_a_scrape_nor_the_answer_about_health(app):
    """The oldest of them are closed: as many as are allowed stay."""
    with MetricsServer(app, 0) as server:
        silent = [connected(server) for _ in range(3 * serving.CONNECTIONS_MAX)]
        assert get(server.url)[0] == 200
        assert get(server.url, "/healthz") == (503, b"no worker\n")
        oldest, newest = silent[: -serving.CONNECTIONS_MAX], silent[-serving.CONNECTIONS_MAX + 2 :]
        for one in oldest:
            with _either():
                assert one.recv(1) == b""
        for one in newest:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
    for one in silent:
        one.close()


@pytest.mark.spec("OPS-2")
def test_scrapes_that_take_no_end_leave_the_answer_about_health(app, monkeypatch):
    """Further scrapes are refused meanwhile, and answered again when the others have ended."""
    entered, free = threading.Semaphore(0), threading.Event()

    async def slow(*_, **__):
        entered.release()
        await asyncio.to_thread(free.wait, 10)
        return "text/plain", b"shown\n"

    monkeypatch.setattr(serving, "exposition", slow)
    with MetricsServer(app, 0) as server, ThreadPoolExecutor(serving.CONNECTIONS_MAX) as pool:
        try:
            scrapes = [pool.submit(get, server.url) for _ in range(serving.CONNECTIONS_MAX)]
            for _ in scrapes:
                assert entered.acquire(timeout=10)
            assert get(server.url) == (503, b"too many connections\n")
            assert get(server.url, "/healthz") == (503, b"no worker\n")
        finally:
            free.set()
        assert {scrape.result() for scrape in scrapes} == {(200, b"shown\n")}
        assert get(server.url)[0] == 200


def test_an_answer_that_nobody_takes_ends_with_its_connection(app, monkeypatch):
    async def large(*_, **__):
        return "text/plain", bytes(64 * 1024 * 1024)

    monkeypatch.setattr(serving, "exposition", large)
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.1)
    with MetricsServer(app, 0) as server, connected(server) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert one.recv(1, socket.MSG_PEEK)
        deadline = time.monotonic() + 10
        while server._tasks:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        taken = 0
        with _either():
            while part := one.recv(1024 * 1024):
                taken += len(part)
        assert taken < 64 * 1024 * 1024


def test_a_server_that_stops_with_open_connections_says_nothing(app, caplog):
    with MetricsServer(app, 0) as server:
        silent = [connected(server) for _ in range(2)]
        get(server.url, "/healthz")
    for one in silent:
        with one, _either():
            assert one.recv(1) == b""
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_first_free_port_of_a_range_is_taken(app):
    with MetricsServer(app, 0) as first:
        with pytest.raises(
            UsageError, match=rf"port {first.port}: Address already in use; choose another port$"
        ):
            MetricsServer(app, first.port).__enter__()
        with MetricsServer(app, (first.port, 0)) as second:
            assert second.port != first.port


# -- real processes -------------------------------------------------------------------------------------


def start_worker(folder, *options):
    """Start `holdfast worker` in a folder, and return it with the address of its metrics."""
    env = {**os.environ, "HOLDFAST_STORE": f"sqlite:///{folder}/runs.db", "PYTHONPATH": str(folder)}
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", "worker", "shop:app", *options],
        env=env, cwd=folder, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in worker.stderr:
        if found := re.search(r"metrics at (http://\S+)", line):
            return worker, found[1]
    raise AssertionError("the worker has not said where its metrics are")


def until(what, seconds=30):
    """Return the first true answer."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.mark.slow
@pytest.mark.spec("OPS-2", "CLI-1")
def test_two_workers_share_a_range_of_ports_and_count_each_run_once(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    with MetricsServer(hf.App(MemoryStore(), name="port"), 0) as free:
        ports = f"{free.port + 1}-{free.port + 40}"
    workers = [start_worker(tmp_path, "--metrics-port", ports, *more) for more in ((), ("--metrics-store",))]
    try:
        urls = [url for _, url in workers]
        assert urls[0] != urls[1]
        until(lambda: all(get(url, "/healthz")[0] == 200 for url in urls))
        app = hf.App(f"sqlite:///{tmp_path}/runs.db")
        for _ in range(20):
            app.sync.start("shop.order.v1")

        def executed():
            key = "holdfast_executions_total", "shop.order.v1", "succeeded"
            return sum(parsed(get(url)[1]).get(key, 0) for url in urls)

        until(lambda: executed() == 20)
        whole = until(
            lambda: (found := parsed(get(urls[1])[1])).get(
                ("holdfast_runs_finished_total", "shop.order.v1", "succeeded")
            ) == 20 and found
        )  # fmt: skip
        assert (whole["holdfast_store_up",], whole["holdfast_workers",]) == (1, 2)
        assert b"holdfast_store_up" not in get(urls[0])[1]
        app.sync.close()
    finally:
        for worker, _ in workers:
            worker.send_signal(signal.SIGTERM)
        ends = [worker.wait(20) for worker, _ in workers]
        for worker, _ in workers:
            worker.stderr.close()
    assert ends == [0, 0]
