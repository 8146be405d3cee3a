"""What really happened, written down outside the store: a line each time a step's code begins.

The store is what is on trial here, so it is not asked for its own alibi.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

VARIABLE = "HOLDFAST_DEMO_LEDGER"


class Executed(NamedTuple):
    """One execution of a step's code."""

    run: str
    step: str
    attempt: int
    pid: int
    at: float


class Ledger:
    """A file of lines, each on the disk before the step goes on."""

    def __init__(self, path: Path | None = None) -> None:
        fallback = Path(tempfile.gettempdir()) / "holdfast-demo-ledger.jsonl"
        self.path = path or Path(os.environ.get(VARIABLE) or fallback)

    def executes(self, run: UUID, step: str) -> int:
        """Note that a step's code begins now; answers how often it has, this time included."""
        before = [one for one in self.read() if (one.run, one.step) == (str(run), step)]
        line = Executed(str(run), step, len(before) + 1, os.getpid(), time.time())
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(line._asdict()).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        return line.attempt

    def read(self) -> list[Executed]:
        """All lines so far."""
        if not self.path.exists():
            return []
        return [Executed(**json.loads(line)) for line in self.path.read_text("utf-8").splitlines()]
