"""`holdfast worker` at several stores: runs of each are done, and one that is away holds up no other."""

from __future__ import annotations

import re
import signal
import socket
from urllib.request import urlopen

import pytest

from holdfast.stores import shown
from servers.plugin import started
from servers.redis import running_redis
from tests.cli.conftest import Cli, eventually

SHOP = "shop.order.v1"
ORDERS = """
from holdfast import App
app = App("memory://")

@app.workflow("shop.order.v1")
async def order(ctx, n: int):
    await ctx.step("reserve", lambda: "B4")
    await ctx.sleep(0.05)
    return n * 2
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "orders.py").write_text(ORDERS)
    return [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]


@pytest.fixture
def port():
    """The URL of a server that nobody runs."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def stores(*urls):
    return [word for url in urls for word in ("--store", url)]


@pytest.mark.slow
@pytest.mark.spec("CLI-2", "LEASE-10")
def test_a_worker_at_several_stores_does_the_runs_of_each_and_stops_cleanly(
    files, postgres_database, process
):
    url = postgres_database.url
    runs = {one: Cli(one).start(SHOP, "21") for one in (*files, url)}
    worker = process("worker", "orders:app", *stores(*runs), "--slots", 5)
    for one, run in runs.items():
        eventually(lambda one=one, run=run: Cli(one).json("show", run)["status"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert err.splitlines()[0] == "one worker at each of 3 stores, with 5 slots each:"
    assert err.count("stopped after") == 3


@pytest.fixture
def namespaces():
    """The URLs of two stores in Redis: two namespaces of one server."""
    with started(running_redis()) as server:
        yield [server.url(prefix) for prefix in ("one", "two")]


@pytest.mark.slow
@pytest.mark.spec("CLI-2", "LEASE-10", "OPS-2")
def test_one_worker_serves_two_namespaces_of_redis_and_a_file(files, namespaces, process):
    runs = {one: [Cli(one).start(SHOP, str(n)) for n in range(3)] for one in (*namespaces, files[0])}
    worker = process(
        "worker", "orders:app", *stores(*runs), "--slots", 5, "--metrics-port", 0, "--log-level", "info"
    )
    for one, ids in runs.items():
        for n, run in enumerate(ids):
            eventually(lambda one=one, run=run: Cli(one).json("show", run)["status"] == "succeeded")
            assert Cli(one).json("result", run)["result"] == n * 2
        assert len(Cli(one)("ls", "--json").stdout.splitlines()) == 3  # a run stays where it was started
    lines = [worker.stderr.readline()]
    while "metrics at" not in lines[-1]:
        lines.append(worker.stderr.readline())
    url = re.search(r"http://\S+/metrics", lines[-1])[0]
    with urlopen(url, timeout=10) as answer:
        metrics = answer.read().decode()
    steps = 'holdfast_step_duration_seconds_count{type="shop.order.v1",outcome="succeeded"}'
    assert f"{steps} 9\n" in metrics  # of all stores together
    assert "holdfast_worker_slots 15\n" in metrics
    worker.send_signal(signal.SIGTERM)
    err = "".join(lines) + worker.stderr.read()
    assert worker.wait(timeout=30) == 0
    assert err.splitlines()[0] == "one worker at each of 3 stores, with 5 slots each:"
    for url in runs:
        assert f" will work at {shown(url)}\n" in err
    assert err.count("stopped after") == 3
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_a_namespace_whose_server_is_down_delays_no_other(files, port, process):
    run = Cli(files[0]).start(SHOP, "4")
    away = f"redis://app:open-sesame@127.0.0.1:{port}/0?prefix=shop"
    worker = process("worker", "orders:app", *stores(away, files[0]))
    eventually(lambda: Cli(files[0]).json("show", run)["status"] == "succeeded")
    lines = [worker.stderr.readline()]
    while lines[-1] and "cannot work" not in lines[-1]:  # the run may end before the server is given up
        lines.append(worker.stderr.readline())
    worker.send_signal(signal.SIGTERM)
    err = "".join(lines) + worker.stderr.read()
    assert worker.wait(timeout=30) == 0
    assert f"cannot work at this store yet, will retry: redis://app@127.0.0.1:{port}/0?prefix=shop: " in err
    assert "open-sesame" not in err
    assert "Traceback" not in err


@pytest.mark.spec("CLI-2", "CLI-3")
@pytest.mark.parametrize("command", [["ls"], ["start", SHOP, "1"], ["doctor"], ["serve"], ["tick"]])
def test_other_commands_take_one_store(files, cli_, command):
    line = cli_.refused(*command, *stores(*files), code=2)
    assert line.startswith("holdfast: give --store once: only the command worker takes several")
    before = cli_.refused(*stores(*files), *command, code=2)
    assert before == line


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_a_store_that_is_down_delays_no_other_and_no_password_is_shown(files, port, process):
    away = f"postgresql://app:open-sesame@127.0.0.1:{port}/orders?password=open-sesame&schema=theirs"
    run = Cli(files[0]).start(SHOP, "4")
    worker = process("worker", "orders:app", *stores(away, files[0]))
    eventually(lambda: Cli(files[0]).json("show", run)["status"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    lines = err.splitlines()
    assert worker.returncode == 0
    assert lines[1:3] == [f"  postgresql://app@127.0.0.1:{port}/orders?schema=theirs", f"  {files[0]}"]
    assert [line for line in lines if "nobody listens there (connection refused)" in line]
    assert "open-sesame" not in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_when_every_store_is_down_the_worker_ends_as_with_one_store(files, port, process):
    urls = (f"postgresql://app@127.0.0.1:{port}/{name}" for name in ("one", "two"))
    worker = process("worker", "orders:app", *stores(*urls))
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 3
    assert err.splitlines()[-1].startswith("holdfast: postgresql://app@127.0.0.1")
    assert "Traceback" not in err


def test_a_store_that_is_named_twice_is_refused(files, cli_):
    assert "the same store is given twice" in cli_.refused(
        "worker", "orders:app", *stores(files[0], files[0]), code=2
    )


@pytest.mark.slow
def test_dev_on_a_server_prints_commands_without_the_password(files, postgres_database, process):
    url = postgres_database.url.replace("postgres@", "postgres:open-sesame@") + "&schema=mine"
    one = process("dev", "orders:app", "--store", url)
    greeting = [line for line in (one.stderr.readline() for _ in range(5)) if "is of version" not in line]
    one.send_signal(signal.SIGINT)
    _, rest = one.communicate(timeout=30)
    assert "Traceback" not in rest
    assert "schema=mine&allow_fsync_off=on' start shop.order.v1 JSON --wait" in greeting[1]
    assert greeting[-1].strip() == "(the password is not shown: add it to the URL, or set PGPASSWORD)"
    assert "open-sesame" not in "".join(greeting) + rest
