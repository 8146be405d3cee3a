"""`holdfast dev` starts its worker again when code changes, keeps its runs, and leaves no process behind."""

from __future__ import annotations

import os
import py_compile
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.cli import reload
from holdfast.cli.reload import is_code, watched_folder

APP = """
import asyncio
import os
from pathlib import Path

import holdfast as hf

app = hf.App()
HERE = Path(__file__).parent
(HERE / "pid").write_text(str(os.getpid()))


@app.workflow("shop.order.v1")
async def order(ctx):
    async def hold():
        with (HERE / "begun").open("a") as file:
            file.write("WORD ")
        while not (HERE / "free").exists():
            await asyncio.sleep(0.05)
        return "WORD"

    return await ctx.step("hold", hold)
"""


def eventually(holds, seconds=30.0, shop=None):
    until = time.monotonic() + seconds
    while not holds():
        printed = "" if shop is None else f": begun {shop.read('begun')!r}, printed {shop.read('errors')}"
        assert time.monotonic() < until, f"it did not come true in time{printed}"
        time.sleep(0.05)


def lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Shop:
    def __init__(self, folder):
        self.folder = folder

    def write(self, text):
        (self.folder / "shop.py").write_text(text, "utf-8")

    def says(self, word):
        self.write(APP.replace("WORD", word))

    def read(self, name):
        file = self.folder / name
        return file.read_text("utf-8") if file.exists() else ""


@pytest.fixture
def shop(tmp_path):
    one = Shop(tmp_path)
    one.says("old")
    return one


@pytest.fixture
def dev(process, url, tmp_path, shop):
    """Start `holdfast dev`, with its output in a file, and wait until its worker has the app."""
    errors = (tmp_path / "errors").open("w", encoding="utf-8")

    def begun(*args):
        one = process("--store", url, "dev", "shop:app", *args, stderr=errors)
        eventually(lambda: "Ctrl-C stops" in shop.read("errors"))
        return one

    yield begun
    errors.close()


@pytest.mark.slow
@pytest.mark.spec("CLI-5")
def test_a_change_of_code_reloads_the_worker_which_keeps_its_run(dev, shop, cli_):
    """The step that was running is executed again, at once, by the new code; no attempt is used up."""
    one = dev()
    run = cli_.start("shop.order.v1")
    eventually(lambda: shop.read("begun") == "old ")
    old = shop.read("pid")
    shop.says("new")
    eventually(lambda: "new" in shop.read("begun").split(), shop=shop)
    assert shop.read("begun") == "old new "
    assert not lives(old)
    (shop.folder / "free").touch()
    eventually(lambda: cli_.json("show", run)["status"] == "succeeded")
    assert cli_.json("result", run)["result"] == "new"
    assert "shop.py changed: reloading" in shop.read("errors")
    assert "press Ctrl-C again" not in shop.read("errors")
    trail = cli_("trail", run).stdout
    assert "released" in trail
    assert "expired" not in trail
    one.send_signal(signal.SIGINT)
    assert one.wait(15) == 0
    assert not lives(shop.read("pid"))


@pytest.mark.slow
@pytest.mark.spec("CLI-5")
def test_broken_code_is_shown_as_the_users_own_traceback_and_the_next_change_is_awaited(dev, shop, cli_):
    one = dev()
    shop.write("def broken():\n    return 1 / 0\n\n\nbroken()\n")
    eventually(lambda: "waiting for the next change" in shop.read("errors"))
    said = shop.read("errors")
    assert said.count('shop.py", line') == 2
    assert "ZeroDivisionError: division by zero" in said
    assert "importlib" not in said
    assert "holdfast/cli" not in said
    shop.says("new")
    run = cli_.start("shop.order.v1")
    eventually(lambda: shop.read("begun") == "new ")
    (shop.folder / "free").touch()
    eventually(lambda: cli_.json("show", run)["status"] == "succeeded")
    one.send_signal(signal.SIGTERM)
    assert one.wait(15) == 0


@pytest.mark.slow
@pytest.mark.spec("CLI-5")
def test_no_worker_outlives_a_killed_supervisor(dev, shop):
    one = dev()
    worker = shop.read("pid")
    assert int(worker) != one.pid
    one.kill()
    one.wait(10)
    eventually(lambda: not lives(worker), 15)


@pytest.mark.slow
@pytest.mark.spec("CLI-5")
def test_a_second_signal_ends_a_worker_that_is_blocked(dev, shop, cli_):
    shop.write(
        APP.replace("WORD", "old").replace("await asyncio.sleep(0.05)", "__import__('time').sleep(60)")
    )
    one = dev()
    cli_.start("shop.order.v1")
    eventually(lambda: shop.read("begun") == "old ")
    one.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert one.poll() is None
    one.send_signal(signal.SIGINT)
    one.wait(10)
    assert not lives(shop.read("pid"))


@pytest.mark.slow
@pytest.mark.spec("CLI-5")
def test_without_reload_there_is_one_process(dev, shop):
    one = dev("--no-reload")
    assert int(shop.read("pid")) == one.pid
    one.send_signal(signal.SIGINT)
    assert one.wait(15) == 0


@pytest.mark.spec("CLI-5")
def test_without_the_library_one_line_says_how_to_get_it(cli_, monkeypatch, tmp_path):
    (tmp_path / "plain_shop.py").write_text(APP, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("holdfast.cli.commands.dev.can_watch", lambda: False)
    monkeypatch.setattr("holdfast.cli.commands.dev.run", lambda work, _: work.close())
    found = cli_("dev", "plain_shop:app")
    assert found.exit_code == 0, found.stderr
    assert found.stderr.splitlines() == [reload.HINT]


@pytest.mark.spec("CLI-5")
def test_only_code_of_the_app_is_watched(tmp_path, monkeypatch):
    for folder in ("pack/inner", "other/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pack/__init__.py").touch()
    (tmp_path / "lone.py").touch()
    (tmp_path / "other/pyvenv.cfg").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert watched_folder("pack.inner:app") == tmp_path / "pack"
    assert watched_folder("lone:app") == tmp_path
    assert watched_folder("no_such_module:app") is None
    code = {name: is_code(str(tmp_path / name), tmp_path) for name in (
        "shop.py", "pack/inner/x.py", "data.json", ".venv/lib/x.py", "__pycache__/x.py", "other/lib/x.py",
        "venv/x.py", ".hidden/x.py",
    )}  # fmt: skip
    assert [name for name, counts in code.items() if counts] == ["shop.py", "pack/inner/x.py"]
    assert not is_code(os.fspath(tmp_path.parent / "elsewhere.py"), tmp_path)


def test_files_that_cannot_be_watched_are_told_once_and_the_worker_goes_on(tmp_path, monkeypatch, capsys):
    """The system has a limit of watched folders."""

    def watch(*_args, **_options):
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr("watchfiles.watch", watch)
    supervisor, worker = reload.Supervisor(tmp_path), SimpleNamespace(returncode=reload.BROKEN)
    supervisor._worker = worker
    supervisor._watch(threading.Event())
    assert supervisor._watching.is_set()  # the worker starts all the same
    assert capsys.readouterr().err == "reload is off: [Errno 28] OS file watch limit reached\n"
    supervisor._news.put(("ended", worker))
    assert supervisor._serve() == reload.BROKEN  # no change will come that could mend it


def test_two_changes_within_one_second_are_not_taken_for_one(tmp_path):
    """Python compares size and whole seconds of a file with its compiled form."""
    code = tmp_path / "shop.py"
    code.write_text("WORD = 'old'")
    compiled = Path(py_compile.compile(code))
    reload._forget_compiled([str(code), str(tmp_path / "no_such.py")])
    assert not compiled.exists()
