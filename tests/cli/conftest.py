"""Fixtures for the command line: call it with words, get its output and exit code, on a file of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import App
from holdfast.cli.main import cli

NOBODY = 65534


class Cli:
    """Call a command: `cli("ls", "--json")`. A traceback fails the test."""

    def __init__(self, url):
        self.url = url

    def __call__(self, *args, store=True, env=None, stdin=None):
        where = self.url if store else None
        runner = CliRunner(env={"NO_COLOR": "1", "HOLDFAST_STORE": where, **(env or {})})
        with patch.object(
            sys, "argv", ["tests"]
        ):  # however they are started: commands are told as `holdfast`
            found = runner.invoke(cli, [*map(str, args)], input=stdin)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        assert "Traceback" not in found.stderr
        return found

    def json(self, *args):
        """The one document that a command prints."""
        return json.loads(self(*args, "--json").stdout)

    def start(self, *args):
        found = self("start", *args)
        assert found.exit_code == 0, found.stderr
        return found.stdout.strip()

    def refused(self, *args, code, **more):
        """The one line of a command that refuses."""
        found = self(*args, **more)
        lines = found.stderr.strip().splitlines()
        assert found.exit_code == code, found.stderr
        assert found.stdout == ""
        assert len(lines) == 1, found.stderr
        return lines[0]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture(autouse=True)
def signal_handlers():
    """Restore the handlers of signals: a command of the command line leaves the process to its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


@pytest.fixture
def cli_(url):
    return Cli(url)


@pytest.fixture
def work(url):
    """Run a worker for these functions until no run moves any more by itself."""

    def worked(**functions):
        app = App(url)
        for name, function in functions.items():
            app.workflow(f"shop.{name}.v1")(function)
        asyncio.run(_worked(app))

    return worked


async def _worked(app):
    await app.publish()
    async with asyncio.timeout(20), app.worker(slots=5):
        while await _moves(app):  # noqa: ASYNC110 - a worker tells nobody that it has nothing to do
            await asyncio.sleep(0.005)
    await app.close()


async def _moves(app):
    stats = await app.store.stats()
    due = stats.oldest_due_at is not None and stats.oldest_due_at <= stats.now
    return due or stats.by_status.get("leased", 0) > 0


@pytest.fixture
def process(tmp_path):
    """Processes of the command line; none outlives its test."""
    started = []

    def begun(*args, env=None, module=True, **more):
        # The tests may have been started with a relative path to the package; these run elsewhere.
        path = os.pathsep.join(
            [str(Path(holdfast.__file__).parents[1]), (env or os.environ).get("PYTHONPATH", "")]
        )
        one = subprocess.Popen(
            [sys.executable, *(["-m", "holdfast.cli"] if module else []), *map(str, args)],
            cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env={**(env or os.environ), "PYTHONPATH": path}, **{"stderr": subprocess.PIPE, **more},
        )  # fmt: skip
        started.append(one)
        return one

    yield begun
    for one in started:
        if one.poll() is None:
            one.send_signal(signal.SIGKILL)
        one.communicate()


@pytest.fixture
def as_nobody():
    """Root ignores permissions: change to another user for a while."""

    @contextlib.contextmanager
    def someone_else():
        root = os.getuid() == 0
        if root:
            os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield
        finally:
            if root:
                os.setresuid(0, 0, 0)

    return someone_else


def eventually(look, seconds=15):
    """Call `look` until its answer is true, and return that answer."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)
    return found
