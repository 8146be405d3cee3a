"""A worker told to stop, as processes are told: SIGTERM, SIGINT, and once more when it takes too long."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.conftest import eventually

pytestmark = pytest.mark.slow

APP = """
import asyncio, logging, threading, sys, time
import holdfast as hf

app = hf.App(name="till")

def say(word):
    print(word, flush=True)

@app.workflow("shop.order.v1")
async def order(ctx, seconds):
    async def pack():
        say("packing")
        await asyncio.sleep(seconds)
    await ctx.step("pack", pack)
    return "packed"

@app.workflow("shop.stuck.v1")
async def stuck(ctx):
    await ctx.step("stuck", lambda: (say("packing"), threading.Event().wait()))

@app.workflow("shop.threaded.v1")
async def threaded(ctx):
    async def pack():
        say("packing")
        await asyncio.to_thread(threading.Event().wait)
    await ctx.step("pack", pack)

@app.workflow("shop.stubborn.v1")
async def stubborn(ctx):
    say("packing")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@app.workflow("shop.blocked.v1")
async def blocked(ctx):
    async def pack():
        say("packing")
        time.sleep(60)
    await ctx.step("pack", pack)

@app.workflow("shop.kept.v1")
async def kept(ctx):
    threading.Thread(target=threading.Event().wait).start()
    say("packing")
    await ctx.step("wait", asyncio.sleep, 60)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    app.run(grace=float(sys.argv[1]), lease=float(sys.argv[2]))
"""
AT_ONCE_SECONDS = 2.5  # with what it takes to end a process of Python on a busy machine


@pytest.fixture
def app(tmp_path):
    (tmp_path / "shop.py").write_text(APP)


@pytest.fixture(params=["holdfast worker", "app.run()"])
def worker(request, app, process, url, monkeypatch):
    """A worker process of either kind."""

    def begun(grace=10.0, lease=30.0):
        monkeypatch.setenv("HOLDFAST_STORE", url)
        if request.param == "app.run()":
            return process("shop.py", grace, lease, module=False)
        return process("worker", "shop:app", "--grace", grace, "--lease", lease)

    return begun


def packing(one):
    """Wait until the step runs."""
    assert one.stdout.readline() == "packing\n"


def told(one, *signals):
    """Send them; the exit code, and how long it took."""
    begun = time.monotonic()
    for number in signals:
        one.send_signal(number)
    _, err = one.communicate(timeout=20)
    assert "Traceback" not in err, err
    return one.returncode, time.monotonic() - begun


def trail(cli_, run):
    return [json.loads(line)["type"] for line in cli_("trail", run, "--json").stdout.splitlines()]


@pytest.mark.spec("LEASE-10", "LEASE-8")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stopping_worker_finishes_its_steps_under_a_renewed_lease_and_claims_no_more(cli_, worker, number):
    """Its step takes longer than the lease: without renewal another worker could have taken it."""
    run = cli_.start("shop.order.v1", "1.2")
    one = worker(grace=10, lease=0.6)
    packing(one)
    one.send_signal(number)
    late = cli_.start("shop.order.v1", "0")
    assert told(one)[0] == 0
    assert cli_("result", run).stdout == '"packed"\n'
    assert trail(cli_, run).count("leased") == 1
    assert trail(cli_, late) == ["created"]


@pytest.mark.spec("LEASE-10", "RETRY-1")
def test_a_run_that_outlasts_the_grace_period_is_released_with_its_attempt(cli_, worker):
    run = cli_.start("shop.order.v1", "60")
    one = worker(grace=0.1)
    packing(one)
    code, took = told(one, signal.SIGTERM)
    assert (code, took < AT_ONCE_SECONDS) == (0, True)
    shown = cli_.json("show", run)
    assert (shown["status"], shown["attempt"], shown["crashes"]) == ("pending", 0, 0)
    assert trail(cli_, run)[-1] == "released"


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("workflow", ["stuck", "threaded", "stubborn"])
def test_a_second_signal_ends_it_at_once_whatever_runs(cli_, worker, workflow):
    """A thread of ours or of asyncio's that never returns, code that catches its own end: none holds it."""
    run = cli_.start(f"shop.{workflow}.v1")
    one = worker(grace=60)
    packing(one)
    one.send_signal(signal.SIGINT)
    while "stopping" not in one.stderr.readline():
        pass
    code, took = told(one, signal.SIGTERM)
    assert code == 0
    assert took < AT_ONCE_SECONDS
    shown = cli_.json("show", run)
    assert (shown["status"], shown["attempt"], trail(cli_, run)[-1]) == ("pending", 0, "released")


@pytest.mark.spec("LEASE-10")
def test_a_second_signal_does_not_wait_for_a_store_that_does_not_answer(cli_, worker, tmp_path):
    run = cli_.start("shop.order.v1", "60")
    one = worker(grace=60)
    packing(one)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        code, took = told(one, signal.SIGTERM, signal.SIGINT)
        assert (code, took < AT_ONCE_SECONDS + 0.5) == (0, True)
    assert cli_.json("show", run)["status"] == "leased"


@pytest.mark.spec("LEASE-10")
def test_a_second_signal_ends_a_worker_whose_event_loop_is_blocked(cli_, worker):
    """No handler of the loop is called while a step blocks it: another thread hears the signals."""
    run = cli_.start("shop.blocked.v1")
    one = worker(grace=60)
    packing(one)
    one.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert one.poll() is None  # the first one waits for the step
    code, took = told(one, signal.SIGTERM)
    assert (code, took < AT_ONCE_SECONDS) == (0, True)
    assert cli_.json("show", run)["status"] == "leased"


LAST_WORDS = """
import threading, time
from pathlib import Path
from holdfast.engine.worker import stopping
from shop import app, say

stopping.END_SECONDS = 0.3
def held():
    names = [one.name for one in threading.enumerate() if one.name in ("holdfast-signals", "holdfast-end")]
    files = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return sum(one.startswith("socket:") for one in files), names

before = held()
app.run(grace=60)
time.sleep(0.6)
say("nothing is left" if held() == before else f"{before}, then {held()}")
raise SystemExit(7)
"""


@pytest.mark.spec("LEASE-10")
def test_the_program_continues_after_app_run_has_returned(cli_, app, process, url, monkeypatch, tmp_path):
    """However it was told to stop: its last words are its own, and so is its exit code."""
    (tmp_path / "words.py").write_text(LAST_WORDS)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    cli_.start("shop.order.v1", "60")
    one = process("words.py", module=False)
    packing(one)
    one.send_signal(signal.SIGTERM)
    one.send_signal(signal.SIGINT)
    out, err = one.communicate(timeout=20)
    assert (out, one.returncode) == ("nothing is left\n", 7), err


@pytest.mark.spec("LEASE-10")
def test_a_thread_of_user_code_does_not_delay_a_worker_after_a_second_signal(
    cli_, app, process, url, monkeypatch
):
    """`holdfast worker` has no last words: after a second signal nothing holds it."""
    monkeypatch.setenv("HOLDFAST_STORE", url)
    cli_.start("shop.kept.v1")
    one = process("worker", "shop:app", "--grace", 60)
    packing(one)
    code, took = told(one, signal.SIGTERM, signal.SIGINT)
    assert (code, took < AT_ONCE_SECONDS) == (0, True)


@pytest.mark.spec("LEASE-10")
def test_two_signals_at_once_count_as_a_second_one(cli_, worker):
    """Two of a kind in one breath the system may make one of; it makes no difference which come."""
    run = cli_.start("shop.order.v1", "60")
    one = worker(grace=60)
    packing(one)
    code, took = told(one, signal.SIGTERM, signal.SIGINT)
    assert (code, took < AT_ONCE_SECONDS) == (0, True)
    assert cli_.json("show", run)["status"] == "pending"


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    "blocks",
    [
        ("import time", "time.sleep(60)"),
        # A lock of C that is held already: no signal interrupts it, and no Python code runs meanwhile.
        ("import ctypes; take = ctypes.CDLL(None).pthread_mutex_lock; take(lock := bytes(64))", "take(lock)"),
    ],
    ids=["python", "C"],
)
@pytest.mark.parametrize(
    "command", [["worker"], ["dev", "--no-reload"], ["serve"]], ids=["worker", "dev", "serve"]
)
def test_a_command_that_is_told_to_stop_while_it_imports_holds_nothing_and_ends(
    process, tmp_path, number, blocks, command
):
    prepares, waits = blocks
    (tmp_path / "slow.py").write_text(f"{prepares}\nprint('importing', flush=True)\n{waits}\n")
    one = process(*command, "slow:app")
    assert one.stdout.readline() == "importing\n"
    code, took = told(one, number)
    assert (code, took < AT_ONCE_SECONDS) == (0, True)


@pytest.mark.spec("LEASE-10")
def test_a_worker_that_is_told_to_stop_while_its_store_is_down_ends(cli_, worker, tmp_path):
    """Its start waits for a database that another program has locked."""
    run = cli_.start("shop.order.v1", "0")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        one = worker()
        eventually(lambda: _opens(one, tmp_path))
        code, took = told(one, signal.SIGTERM)
        assert (code, took < AT_ONCE_SECONDS) == (0, True)
    assert trail(cli_, run) == ["created"]


def _opens(one, tmp_path):
    """Whether the process has the file open."""
    with contextlib.suppress(OSError):
        return any(fd.readlink() == tmp_path / "runs.db" for fd in Path(f"/proc/{one.pid}/fd").iterdir())
    return False
