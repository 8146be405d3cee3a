"""Real processes for tests of clients: `holdfast serve` on a store, worker programs, and requests to the API.

    with kit.site(store_url, folder) as site:
        worker = site.worker([program])
        run = site.start("shop.order.v1", {"id": 42})
        assert site.ended(run)["status"] == "succeeded"

The worker program finds the server in HOLDFAST_STORE and its API key, with scope `work`, in HOLDFAST_KEY.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import holdfast as hf
from tests.docs import pages

ROOT = pages.ROOT
CLIENTS = ROOT / "clients"
WAIT_SECONDS = 30.0
EVERY_SCOPE = ("runs.read", "payloads.read", "runs.write", "approvals.decide", "admin", "operator")
FINAL = {"succeeded", "failed", "cancelled"}
_SERVING = re.compile(r"^serving (http://\S+);", re.MULTILINE)


def until(look: Callable[[], Any], seconds: float = WAIT_SECONDS, hint: Callable[[], str] = str) -> Any:
    """Wait in real time, because real processes have no clock that a test can turn."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, hint()
        time.sleep(0.02)
    return found


class Program:
    """One process; its output goes to a file."""

    def __init__(self, argv: Sequence[str | Path], folder: Path, env: dict[str, str], name: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([*map(str, argv)], cwd=folder, env=env, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, seconds: float = WAIT_SECONDS) -> int:
        """Ask the process to stop gracefully and return its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)

    def said(self, text: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the process has written this text."""
        until(lambda: text in self.log, seconds, lambda: f"{text!r} is not in:\n{self.log[-4000:]}")


class Site:
    """A store, its server, and the worker programs that a test starts."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store, self.folder, self.url = store, folder, ""
        self.dsn = ""  # of the database, for any driver; only of Postgres
        self._programs: list[Program] = []
        self._started = 0

    def open(self) -> None:
        """Make the keys and start the server, which also does the chores for its workers."""
        self.key = self.new_key("test", *EVERY_SCOPE)
        self.work_key = self.new_key("worker", "work")
        self.server = self.serve()

    def serve(self) -> Program:
        """Start the server; a server that was killed comes back at the same address."""
        port = self.url.rpartition(":")[2] or "0"
        server = self.command("serve", "--port", port)
        found = until(lambda: _SERVING.search(server.log), hint=lambda: server.log)
        self.url, self.server = found[1], server
        return server

    def worker(self, argv: Sequence[str | Path], **env: str) -> Program:
        """Start a worker program."""
        settings = {"HOLDFAST_STORE": self.url, "HOLDFAST_KEY": self.work_key, **env}
        return self._program("worker", argv, settings)

    def command(self, *arguments: str) -> Program:
        """Start a command that goes on, on the store."""
        argv = [sys.executable, "-m", "holdfast.cli", *arguments]
        return self._program(arguments[0], argv, {"HOLDFAST_STORE": self.store})

    def new_key(self, name: str, *scopes: str, tenant: str = "default") -> str:
        """Return the secret of a new API key."""
        app = hf.App(self.store).sync
        try:
            return app.create_key(name, scopes=scopes, tenant=tenant).secret
        finally:
            app.close()

    def holdfast(self, *arguments: str) -> str:
        """Run a command on the store and return its output."""
        argv = [sys.executable, "-m", "holdfast.cli", *arguments]
        env = environment() | {"HOLDFAST_STORE": self.store}
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Return status and JSON of an answer of the server."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {key or self.key}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer that is no refusal."""
        status, answer = self.ask(method, path, body)
        assert status < 400, answer
        return answer

    def start(self, type: str, params: Any = None, **fields: Any) -> str:
        """Start a run and return its id."""
        return str(self.must("POST", "/runs", {"type": type, "params": params, **fields})["id"])

    def run(self, run: str) -> Any:
        return self.must("GET", f"/runs/{run}")

    def steps(self, run: str) -> list[Any]:
        return list(self.must("GET", f"/runs/{run}/steps")["items"])

    def trail(self, run: str) -> list[Any]:
        return list(self.must("GET", f"/runs/{run}/events")["items"])

    def until(self, run: str, *statuses: str, seconds: float = WAIT_SECONDS) -> Any:
        """Wait until the run has one of these statuses and return the run."""

        def look() -> Any:
            now = self.run(run)
            assert now["status"] in statuses or now["status"] not in FINAL, (now, self.logs())
            return now["status"] in statuses and now

        return until(look, seconds, lambda: f"{self.run(run)}\n{self.logs()}")

    def ended(self, run: str, seconds: float = WAIT_SECONDS) -> Any:
        """Wait until the run has ended and return it."""
        return self.until(run, *FINAL, seconds=seconds)

    def emit(self, topic: str, payload: Any = None) -> None:
        self.must("POST", "/events", {"topic": topic, "payload": payload})

    def logs(self) -> str:
        return "\n".join(one.log[-3000:] for one in self._programs)

    @contextlib.contextmanager
    def workers(self) -> Iterator[Site]:
        """Kill the worker programs that are started in the block, at its end."""
        before = len(self._programs)
        try:
            yield self
        finally:
            for one in self._programs[before:]:
                one.kill()
            del self._programs[before:]

    def close(self) -> None:
        for one in self._programs:
            one.kill()

    def _program(self, name: str, argv: Sequence[str | Path], settings: dict[str, str]) -> Program:
        self._started += 1
        program = Program(argv, self.folder, environment() | settings, f"{name}{self._started}")
        self._programs.append(program)
        return program


def environment() -> dict[str, str]:
    """Return the variables of this process without those that name a store or a key."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@contextlib.contextmanager
def site(store: str, folder: Path) -> Iterator[Site]:
    """Serve a store until the block ends; then every process that was started is killed."""
    made = Site(store, folder)
    try:
        made.open()
        yield made
    finally:
        made.close()
