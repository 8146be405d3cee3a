"""Real worker processes, and the promise that none of them is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .ledger import VARIABLE

LEASE_SECONDS = 1.5
STOP_SECONDS = 5.0


class Actor:
    """One worker process: `holdfast worker`, as anyone would start it."""

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
        """Its exit code; minus the signal's number when one killed it."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL: no handler, no goodbye."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that is not heeded."""
        if self.code is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:  # a second Ctrl-C: leave nothing behind, then go
            self.kill()
            raise

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "(it said nothing)"
