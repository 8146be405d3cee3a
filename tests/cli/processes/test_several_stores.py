"""`holdfast worker` at several stores: runs of each are done, and one that is away holds up no other."""

from __future__ import annotations

import signal
import socket

import pytest

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
