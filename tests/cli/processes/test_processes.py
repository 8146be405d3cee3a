"""Workers as real processes: MODULE:APP, readable logs, `start --wait`, a graceful end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from shlex import quote

import pytest

from tests.cli.conftest import eventually

ORDERS = """
from holdfast import App, Backoff
app = App()

@app.workflow("shop.order.v1")
async def order(ctx, n):
    await ctx.step("reserve", lambda: "B4")
    await ctx.sleep(0.05)
    return n * 2

@app.workflow("shop.broken.v1")
async def broken(ctx):
    async def boom():
        raise ValueError("out of stock")
    await ctx.step("boom", boom, retry=Backoff.none())

empty = App()
"""
APP = "from holdfast import App\napp = App()\n"
NEWS = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  info     [0-9a-f]{8}  shop\.order\.v1 succeeded after \d+\.\d\d s"
)


@pytest.fixture
def orders(tmp_path):
    (tmp_path / "orders.py").write_text(ORDERS)


@pytest.fixture
def worker(orders, process, url, cli_, tmp_path):
    one = process("--store", url, "worker", "orders:app", "--lease", "2s", "--name", "till")
    eventually(lambda: (tmp_path / "runs.db").exists() and '"shop.order.v1"' in _published(cli_))
    return one


def _published(cli_):
    found = cli_("start", "shop.order", "1", "--delay", "1d", "--json", "--key", "probe")
    return found.stdout


@pytest.mark.slow
@pytest.mark.spec("CLI-1")
def test_start_wait_follows_the_run_and_prints_its_result(worker, process, url):
    """The story goes to stderr and the result to stdout, so that a script can use it."""
    out, err = process("--store", url, "start", "shop.order", "21", "--wait").communicate(timeout=30)
    told = [line.split("  ", 1)[-1] for line in err.splitlines()]
    assert out == "42\n"
    assert "step reserve succeeded" in told
    assert "waits for a timer (step sleep)" in told
    assert told[-1] == "succeeded"


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_start_wait_of_a_run_that_fails_is_exit_1_with_the_reason(worker, process, url):
    one = process("--store", url, "start", "shop.broken", "--wait")
    out, err = one.communicate(timeout=30)
    assert (one.returncode, out) == (1, "")
    assert "out of stock" in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.slow
def test_start_wait_as_json_is_one_document(worker, process, url):
    out, _ = process("--store", url, "start", "shop.order", "4", "--wait", "--json").communicate(timeout=30)
    told = json.loads(out)
    assert [told[key] for key in ("type", "created", "status", "result")] == [
        "shop.order.v1",
        True,
        "succeeded",
        8,
    ]


@pytest.mark.slow
def test_a_workers_log_is_one_readable_line_a_run_and_it_stops_gracefully(worker, cli_):
    run = cli_.start("shop.order", "1")
    eventually(lambda: cli_.json("show", run)["status"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=15)
    lines = err.splitlines()
    assert worker.returncode == 0
    assert any(NEWS.fullmatch(line) and run[-8:] in line for line in lines), err
    assert re.search(r"worker till:.* 2 workflows, 100 slots", lines[0])
    assert "stopped after" in lines[-1]
    assert len(lines) < 10


@pytest.mark.slow
def test_waiting_for_a_run_that_no_worker_can_take_says_so_and_ctrl_c_is_clean(process, url, cli_):
    one = process("--store", url, "start", "shop.lonely.v1", "--wait")
    first = [one.stderr.readline() for _ in range(4)]
    assert "No live worker can run shop.lonely.v1" in first[-1]
    one.send_signal(signal.SIGINT)
    out, err = one.communicate(timeout=10)
    assert (one.returncode, out) == (130, "")
    assert re.match(rf"stopped waiting; the run continues, and `.* result \w+ --store {url}` waits", err)
    assert len(err.strip().splitlines()) == 1
    assert '"pending"' in cli_("ls", "--json").stdout


SLOW_IMPORT = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize("library", ["click", "msgspec"])  # of all commands, of this one
def test_ctrl_c_while_a_command_is_imported_prints_no_traceback(process, tmp_path, library):
    (tmp_path / f"{library}.py").write_text(SLOW_IMPORT, "utf-8")
    one = process("ls")
    assert one.communicate(timeout=20) == ("", "")
    assert one.returncode == 130


@pytest.mark.slow
def test_dev_prints_commands_to_type_and_then_the_trail(orders, process, url, cli_, tmp_path):
    one = process("--store", url, "dev", "orders:app")
    greeting = [one.stderr.readline() for _ in range(4)]
    assert greeting[0].startswith(f"2 workflows in {url}; Ctrl-C stops.")
    assert f"--store {url} start shop.order.v1 JSON --wait" in greeting[1]
    eventually(lambda: '"shop.order.v1"' in _published(cli_) if (tmp_path / "runs.db").exists() else False)
    run = cli_.start("shop.order", "1")
    eventually(lambda: cli_.json("show", run)["status"] == "succeeded")
    one.send_signal(signal.SIGINT)
    _, err = one.communicate(timeout=15)
    assert one.returncode == 0
    assert f"{run[-8:]}  step reserve succeeded" in err
    assert f"{run[-8:]}  succeeded" in err


@pytest.mark.slow
def test_a_closed_pipe_is_silent(cli_, url):
    for _ in range(3):
        cli_.start("shop.order.v1")
    trail = f"{quote(sys.executable)} -m holdfast.cli --store {quote(url)} trail --json"
    script = f"{trail} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch:app", "no module 'nosuch' in /"),
        ("orders.py", "is a file: name the module, as in orders:app"),
        ("orders:ap", "module 'orders' has no 'ap'; its Apps: app, empty"),
        ("orders:order", "orders:order is a Workflow, not an App"),
        ("orders", "name the App of 'orders', as in orders:app"),
        ("orders:empty", "orders:empty has no workflows"),
        ("raises:app", "raises.py:2: ZeroDivisionError: division by zero"),
        ("yields:app", "yields.py:3: UsageError: workflow shop.order.v1: its function is a generator"),
        (
            "naked:app",
            'naked.py:3: UsageError: a workflow needs a type: write @app.workflow("shop.order.v1")',
        ),
        ("thrice:app", "thrice.py:3: UsageError: workflow shop.order.v1: retry=3: give a Backoff"),
        ("imports:app", "ModuleNotFoundError: No module named 'nowhere'"),
        ("syntax:app", "syntax.py:1: invalid syntax"),
        ("leaves:app", "ends the program when it is imported (exit 5)"),
        ("bare:app", "the module has no App: write app = App()"),
        (":app", "is not a module: write MODULE:APP"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_one_line(cli_, orders, tmp_path, monkeypatch, name, says):
    """The line names the place in the user's own code; there is no traceback."""
    for module, text in {
        "raises": "x = 1\n1 / 0\n",
        "yields": f"{APP}@app.workflow('shop.order.v1')\ndef order(ctx): yield\n",
        "naked": f"{APP}@app.workflow\nasync def order(ctx): ...\n",
        "thrice": f"{APP}@app.workflow('shop.order.v1', retry=3)\nasync def order(ctx): ...\n",
        "imports": "import nowhere\n",
        "syntax": "def = 3\n",
        "leaves": "raise SystemExit(5)\n",
        "bare": "",
    }.items():
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, name.partition(":")[0], raising=False)
    assert says in cli_.refused("worker", name, code=2)
    assert not (tmp_path / "runs.db").exists()


def test_a_pattern_that_matches_nothing_is_refused_with_the_types_of_the_app(
    cli_, orders, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "orders", raising=False)
    line = cli_.refused("worker", "orders:app", "--pattern", "billing.%", code=2)
    assert "it has shop.order.v1, shop.broken.v1" in line
    assert "% is allowed only at the end" in cli_.refused("worker", "orders:app", "--pattern", "%.v1", code=2)
