"""The second tutorial, followed to its end: a gate, a child, a warehouse that is down, a schedule, a test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.docs import pages
from tests.docs.test_commands import Desk, desk

PAGE = pages.ROOT / "docs" / "tutorial-approval.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ORDER = '{"id": 7, "total": 5000}'

__all__ = ["desk"]  # a fixture


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Warehouse:
    """The page's own program, on a port of its own."""

    def __init__(self, here: Desk, port: int) -> None:
        self._file, self._out = here.folder / "warehouse.py", here.folder / "warehouse.log"
        self._file.write_text(self._file.read_text("utf-8").replace("8123", str(port)), "utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(self._file)], stdout=out, stderr=out,
                env={**os.environ, "WAREHOUSE_SECRET": SECRET},
            )  # fmt: skip

    def received(self) -> list[str]:
        return self._out.read_text("utf-8").splitlines()

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_second_tutorial_can_be_followed(desk, monkeypatch):
    """Messages sent while the warehouse is down are not lost, and arrive in order."""
    monkeypatch.setenv("WAREHOUSE_SECRET", SECRET)
    here, port = desk(PAGE), free_port()
    warehouse = Warehouse(here, port)
    here.dev()
    here.until(lambda: here.type("start", "shop.order", ORDER, "--key", "order:7").returncode == 0)
    url = f"http://127.0.0.1:{port}/orders"
    secret = ("--secret-from-env", "WAREHOUSE_SECRET")
    added = here.type("sink", "add", "warehouse", url, *secret, "--allow-private")
    assert added.returncode == 0, added.stderr
    assert SECRET not in added.stdout + added.stderr
    here.until(lambda: "Sell 5000?" in here.type("approvals").stdout)
    (run,) = here.runs()

    approve = ("approve", run, "--by", "Ada", "--comment", "known customer")
    first, again = here.type(*approve), here.type(*approve)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert here.type("reject", run).returncode == 1
    here.until(lambda: here.runs()[run] == "succeeded")
    waiting = here.type("outbox", "ls")
    assert (waiting.returncode, waiting.stdout.count("warehouse")) == (0, 2), waiting.stdout
    warehouse.open()
    try:
        here.until(lambda: len(warehouse.received()) == 2)
    finally:
        warehouse.close()
    assert ["paid" in warehouse.received()[0], "invoice-7.pdf" in warehouse.received()[1]] == [True, True]

    cron = ("--cron", "0 3 * * *", "--zone", "Europe/Berlin")
    assert here.type("schedule", "add", "nightly", "shop.report", *cron).returncode == 0
    assert here.type("schedule", "fire", "nightly").returncode == 0
    assert here.type("limit", "set", "--type", "shop.order.v1", "--concurrency", "5").returncode == 0
    here.until(lambda: list(here.runs().values()).count("succeeded") == 3)


@pytest.mark.slow
def test_the_test_of_the_tutorial_passes(tmp_path):
    for block in pages.python(PAGE):
        (tmp_path / (block.file or "")).write_text(block.text, "utf-8")
    env = {
        **os.environ,
        "PYTHONPATH": f"{pages.ROOT / 'src'}:{tmp_path}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "holdfast.testing.plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "2 passed" in tried.stdout, tried.stdout + tried.stderr
