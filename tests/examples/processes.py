"""Real processes of an example: its worker, its web server, and the command line beside them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from tests.docs import pages

EXAMPLES = pages.ROOT / "examples"
WAIT_SECONDS = 60.0


class Processes:
    """The processes of one example in one folder, all with the same store."""

    def __init__(self, example: str, folder: Path, store: str, **env: str) -> None:
        self.folder, self._running = folder, list[subprocess.Popen[bytes]]()
        self.store = hf.App(store).sync  # reads of the test itself
        self.env = {key: value for key, value in os.environ.items() if key != "HOLDFAST_STORE"} | {
            "PYTHONPATH": f"{pages.ROOT / 'src'}:{EXAMPLES / example}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOLDFAST_STORE": store,
            **env,
        }

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a process; its output goes to `log` in the folder."""
        with (self.folder / "log").open("ab") as log:
            argv = [sys.executable, *command]
            env = self.env | env
            one = subprocess.Popen(argv, cwd=self.folder, env=env, stdout=log, stderr=log)
        self._running.append(one)
        return one

    def worker(self, app: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        return self.start("-m", "holdfast.cli", "worker", app, *options, **env)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._running.remove(process)

    def cli(self, *arguments: str) -> Any:
        """Return what a command answers, from its JSON."""
        argv = [sys.executable, "-m", "holdfast.cli", *arguments, "--json"]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        if done.stdout.lstrip().startswith("["):
            return json.loads(done.stdout)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return rows if arguments[0] in {"ls", "trail", "approvals"} else rows[0]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8")

    def until(self, look: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Wait in real time, because real processes have no clock that a test can turn."""
        end = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < end, self.log[-4000:]
            time.sleep(0.05)
        return found

    def stop(self) -> None:
        self.store.close()
        for one in self._running:
            one.send_signal(signal.SIGKILL)
            one.wait()


def store_url(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a new store, of the kind that the parameter of a fixture names."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database").url)
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return f"sqlite:///{folder}/holdfast.db"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def http(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; (0, None) when nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Content-Type": "application/json", **named}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except urllib.error.URLError:
        return 0, None
