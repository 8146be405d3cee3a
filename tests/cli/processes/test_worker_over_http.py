"""`holdfast worker --store http://…`: real processes, real signals, kill -9 of the server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time

import pytest

from tests.cli.conftest import Cli, eventually

ORDERS = """
import asyncio
import pathlib

from holdfast import App

app = App("memory://")

def note(word):
    with pathlib.Path("ran").open("a") as file:
        file.write(word + "\\n")

@app.workflow("shop.order.v1")
async def order(ctx, n: int):
    await ctx.step("reserve", lambda: note(f"reserve {n}"))
    await ctx.sleep(0.05)
    return n * 2

@app.workflow("shop.slow.v1")
async def slow(ctx, seconds: float):
    async def work():
        note("begun")
        await asyncio.sleep(seconds)
        note("ended")

    await ctx.step("work", work)
    await ctx.step("after", lambda: note("after"))
    return "done"
"""


@pytest.fixture
def url(tmp_path):
    (tmp_path / "orders.py").write_text(ORDERS)
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def serve(process, url, port):
    """A function that starts the server, on the same port each time."""

    def served():
        one = process("serve", "--store", url, "--port", port)
        for line in one.stderr:
            if line.startswith("serving"):
                return one
        raise AssertionError(one.returncode)

    return served


def ran(tmp_path):
    file = tmp_path / "ran"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def keyed(key=None):
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_KEY"}
    return env if key is None else {**env, "HOLDFAST_KEY": key}


def succeeded(cli, run, seconds=30):
    eventually(lambda: cli.json("show", run)["status"] == "succeeded", seconds)
    return cli.json("show", run)


@pytest.mark.spec("HTTP-3")
@pytest.mark.slow
def test_a_worker_keeps_its_runs_while_the_server_is_killed_and_started_again(
    process, serve, url, port, tmp_path
):
    cli, first = Cli(url), serve()
    worker = process("worker", "orders:app", "--store", f"http://127.0.0.1:{port}", env=keyed())
    slow = cli.start("shop.slow.v1", "3")
    eventually(lambda: ran(tmp_path) == ["begun"])
    first.send_signal(signal.SIGKILL)
    first.wait()
    time.sleep(0.5)
    serve()
    orders = [cli.start("shop.order.v1", str(n)) for n in range(5)]
    assert succeeded(cli, slow)["fence"] == 1
    for n, run in enumerate(orders):
        assert succeeded(cli, run)["result"] == 2 * n
    assert sorted(ran(tmp_path)) == sorted(["begun", "ended", "after", *(f"reserve {n}" for n in range(5))])
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "Traceback" not in err


@pytest.mark.spec("LEASE-10")
@pytest.mark.slow
def test_sigterm_lets_the_step_end_and_gives_the_run_back(process, serve, url, port, tmp_path):
    cli, server = Cli(url), f"http://127.0.0.1:{port}"
    serve()
    worker = process("worker", "orders:app", "--store", server, env=keyed())
    slow = cli.start("shop.slow.v1", "1")
    eventually(lambda: ran(tmp_path) == ["begun"])
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert (worker.returncode, "Traceback" in err) == (0, False)
    assert ran(tmp_path) == ["begun", "ended", "after"]
    assert cli.json("show", slow)["status"] == "succeeded"

    long = cli.start("shop.slow.v1", "60")
    worker = process("worker", "orders:app", "--store", server, "--grace", "0.2", env=keyed())
    eventually(lambda: ran(tmp_path)[3:] == ["begun"])
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=30)
    found = cli.json("show", long)
    assert (found["status"], found["crashes"], found["leased_by"]) == ("pending", 0, None)
    assert not json.loads(cli("workers", "--json").stdout or "[]")


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_one_process_works_at_a_server_and_at_a_store(process, serve, url, port, tmp_path):
    serve()
    other = f"sqlite:///{tmp_path / 'other.db'}"
    clis = [Cli(url), Cli(other)]
    runs = [cli.start("shop.order.v1", "21") for cli in clis]
    stores = ["--store", f"http://127.0.0.1:{port}", "--store", other]
    worker = process("worker", "orders:app", *stores, env=keyed())
    for cli, run in zip(clis, runs, strict=True):
        assert succeeded(cli, run)["result"] == 42
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert err.splitlines()[0] == "one worker at each of 2 stores, with 100 slots each:"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scopes", "key", "said"),
    [
        (["work"], None, r"wants an API key: .*HOLDFAST_KEY"),
        (["work"], f"hf_{'a' * 12}_{'b' * 32}", r"refuses the API key: it is unknown, expired or revoked"),
        (["work"], "secret", r"the API key is not one of Holdfast"),
        (["runs.read"], "real", r"work"),
    ],
)
def test_a_wrong_key_is_one_clear_line(process, serve, url, port, scopes, key, said):
    words = [word for one in scopes for word in ("--scope", one)]
    made = Cli(url)("keys", "create", "worker", *words)
    serve()
    secret = re.search(r"hf_\w{12}_\w{32}", made.stdout)[0] if key == "real" else key
    worker = process("worker", "orders:app", "--store", f"http://127.0.0.1:{port}", env=keyed(secret))
    out, err = worker.communicate(timeout=30)
    lines = [one for one in err.splitlines() if one.strip()]
    assert (worker.returncode not in {0, None}, out, len(lines)) == (True, "", 1), err
    assert re.search(said, lines[0])
    assert "hf_" not in lines[0] or "hf_<id>" in lines[0]


@pytest.mark.slow
def test_a_server_that_is_not_there_is_one_clear_line(process, url, port):
    worker = process("worker", "orders:app", "--store", f"http://127.0.0.1:{port}", env=keyed())
    _, err = worker.communicate(timeout=60)
    lines = [one for one in err.splitlines() if one.strip()]
    assert (worker.returncode, len(lines)) == (3, 1), err
    assert "cannot be reached: Connection refused" in lines[0]
