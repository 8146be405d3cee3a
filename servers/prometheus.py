"""Prometheus for tests: the installed program, or the package of Debian, unpacked; with it, `promtool`.

It answers 0.1 s after its start. Its first scrapes come after 5 s, which no option changes: start it early.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from servers import debian
from servers.private import Private, ServerError, free_port

REQUIRED_BY = ("HOLDFAST_REQUIRE_PROMETHEUS", "CI")  # either makes a missing Prometheus a failure
WAYS = "install it (Debian: apt install prometheus; macOS: brew install prometheus)"
TRIES = 3
ANSWER_SECONDS = 10.0
TOOL_SECONDS = 60.0
POLL_SECONDS = 0.05


class NotYet(Exception):
    """The server does not answer yet."""


class BadQuery(Exception):
    """Prometheus refuses an expression, or cannot compute it."""


@dataclass(frozen=True)
class Programs:
    """The programs prometheus and promtool."""

    prometheus: Path
    promtool: Path

    def check(self, *words: str | Path, given: str | None = None) -> str:
        """Run promtool and return its output; AssertionError if it finds a fault. given: its input."""
        done = subprocess.run(
            [self.promtool, *words],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS,
        )
        assert done.returncode == 0, f"promtool {words[0]} failed:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@dataclass(frozen=True)
class Target:
    """An address to scrape: `127.0.0.1:9100`. key: an API key, sent as a bearer token."""

    job: str
    address: str
    path: str = "/metrics"
    key: str = ""

    def config(self, interval: str) -> dict[str, Any]:
        """Return its part of the configuration."""
        found: dict[str, Any] = {
            "job_name": self.job,
            "metrics_path": self.path,
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "static_configs": [{"targets": [self.address]}],
        }
        if self.key:
            found["authorization"] = {"credentials": self.key}
        return found


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    port: int
    data: Path
    programs: Programs

    def ask(self, path: str, **query: str) -> Any:
        """Return the `data` of an answer of the HTTP API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", f"/api/v1/{path}?{urlencode(query)}")
            answer = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise NotYet(f"Prometheus at port {self.port}: {error}") from error
        finally:
            connection.close()
        if answer.get("status") != "success":
            raise BadQuery(f"{query.get('query', path)}: {answer.get('error')}")
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the present values of an expression: labels and value. BadQuery if it cannot be parsed."""
        found = self.ask("query", query=expression)
        if found["resultType"] != "vector":
            return [({}, float(found["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def value(self, expression: str) -> float:
        """Return the sum of the present values, 0 without any."""
        return sum(value for _, value in self.query(expression))

    def up(self) -> dict[str, str]:
        """Return the health of each job, by name: up, unknown, or the last error."""
        found = self.ask("targets", state="active")["activeTargets"]
        return {one["labels"]["job"]: one["lastError"] or one["health"] for one in found}

    def wait_for(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until the scraped values are as expected. AssertionError after so many seconds."""
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"after {seconds:.0f} s Prometheus has not seen: {what}"
            time.sleep(POLL_SECONDS)


@contextmanager
def running_prometheus(targets: Sequence[Target] = (), *, interval: str = "250ms") -> Iterator[Prometheus]:
    """Run a private Prometheus that scrapes these targets. It ends with this process, however that ends."""
    with Private("pm", drop_root=False) as private:
        programs = find(private.folder)
        config = private.folder / "prometheus.yml"
        # JSON is YAML, and needs no library.
        config.write_text(json.dumps({"scrape_configs": [one.config(interval) for one in targets]}), "utf-8")
        server = _started(private, programs, config)
        yield server


def _started(private: Private, programs: Programs, config: Path) -> Prometheus:
    """Start the server at a free port. Another process may take the port first: then choose another one."""
    for tries in range(1, TRIES + 1):
        server = Prometheus(free_port(), private.folder / "data", programs)
        private.start(_command(server, config))
        try:
            private.wait_until(partial(_identify, server), not_yet=NotYet)
        except ServerError:
            if tries == TRIES or "address already in use" not in private.log():
                raise
        else:
            return server
    raise AssertionError


def _command(server: Prometheus, config: Path) -> list[str | Path]:
    return [
        server.programs.prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={server.data}",
        "--storage.tsdb.retention.time=1h",
        f"--web.listen-address=127.0.0.1:{server.port}",
        "--log.level=warn",
    ]


def _identify(server: Prometheus) -> None:
    """Check that the server at the port is the one that was started here."""
    try:
        found = server.ask("status/flags")["storage.tsdb.path"]
        server.query("1")  # refused until the storage is ready
    except BadQuery as error:
        raise NotYet(str(error)) from error
    if found != str(server.data):
        raise ServerError(f"at port {server.port} is another Prometheus: its data is in {found}")


def find(folder: Path, environment: Mapping[str, str] = os.environ) -> Programs:
    """Return the installed programs, else those of Debian, unpacked into a cache or into this folder."""
    path = environment.get("PATH", os.defpath)
    installed = [shutil.which(name, path=path) for name in ("prometheus", "promtool")]
    if all(installed):
        return Programs(*(Path(str(one)) for one in installed))
    if not debian.available():
        raise ServerError(f"Prometheus is not installed: {WAYS}")
    try:
        root = debian.unpacked("prometheus", folder)
    except ServerError as error:
        raise ServerError(f"Prometheus is not installed, and {error}: {WAYS}") from None
    return Programs(root / "usr/bin/prometheus", root / "usr/bin/promtool")
