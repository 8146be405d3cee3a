"""A file outside the store: one line each time that the code of a step begins.

The demo checks the store, so the evidence must not come from the store alone.
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
    """A file of lines; each line is on the disk before the step continues."""

    def __init__(self, path: Path | None = None) -> None:
        fallback = Path(tempfile.gettempdir()) / "holdfast-demo-ledger.jsonl"
        self.path = path or Path(os.environ.get(VARIABLE) or fallback)

    def executes(self, run: UUID, step: str) -> int:
        """Write that a step's code begins now; return how often it has begun, this time included."""
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
