"""Worker programs of the experiment: built once, started as processes, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from servers import golang
from servers.typescript import TypeScript

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / "clients"

GO, TYPESCRIPT, REMOTE, DIRECT = "go", "typescript", "python over http", "python on the store"


def commands(folder: Path, store: str) -> dict[str, list[str]]:
    """Build all worker programs; return the command line of each kind. All execute the same script.

    ServerError says how to get what is missing.
    """
    python = [sys.executable, "-m", "holdfast.cli", "worker", "verify.languages.script:app", "--store"]
    return {
        GO: [str(golang.built(golang.find(folder), CLIENTS / "go", "conformance", folder))],
        TYPESCRIPT: TypeScript().program("conformance/worker"),
        REMOTE: [*python, "$HOLDFAST_URL"],
        DIRECT: [*python, store],
    }


class Programs:
    """Processes of one kind of worker: those that end are replaced. None outlives the block."""

    def __init__(
        self, kind: str, command: Sequence[str], env: Mapping[str, str], size: int, log: Path
    ) -> None:
        self.kind, self._env, self._size, self._log = kind, dict(env), size, log
        self._command = [env["HOLDFAST_URL"] if word == "$HOLDFAST_URL" else word for word in command]
        self.members: list[subprocess.Popen[bytes]] = []
        self.killed = self.ended = 0

    def __enter__(self) -> Self:
        self.members = [self._new() for _ in range(self._size)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.members:
            _end(process)

    def _new(self) -> subprocess.Popen[bytes]:
        number = self.killed + self.ended + len(self.members)
        env = self._env | {"HOLDFAST_WORKER": f"{self.kind.replace(' ', '-')}-{number}"}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=ROOT, env=os.environ | env, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, index: int) -> None:
        """Send SIGKILL to a process and its children; start a new one at once."""
        _end(self.members[index])
        self.killed += 1
        self.members[index] = self._new()

    def supervise(self) -> None:
        """Replace processes that ended by themselves: each is a fault."""
        for index, process in enumerate(self.members):
            if process.poll() is not None:
                self.ended += 1
                self.members[index] = self._new()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
