"""Worker processes of the demo. None of them outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .ledger import VARIABLE

LEASE_SECONDS = 1.5
STOP_SECONDS = 5.0


class WorkerProcess:
    """One process of `holdfast worker`."""

    def __init__(self, number: int, folder: Path, url: str, ledger: Path) -> None:
        self.name = f"worker {number}"
        self.log = folder / f"worker-{number}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", "worker", "holdfast.cli.demo.app:app", "--store", url,
                 "--lease", str(LEASE_SECONDS), "--grace", "1", "--name", f"worker-{number}"],
                env={**os.environ, VARIABLE: str(ledger)}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; minus the signal's number if a signal killed it."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill it with SIGKILL, which it cannot catch."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop it with SIGTERM, and with SIGKILL if that has no effect in time."""
        if self.code is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:  # a second Ctrl-C: leave no process behind
            self.kill()
            raise

    def last_line(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "(its log is empty)"
