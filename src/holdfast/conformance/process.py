"""The worker program as a process: started, stopped, killed, and its output kept."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast.clipped import clipped
from holdfast.errors import UsageError
from holdfast.escaping import escaped

LINES = 200  # lines of output that are kept
LINE_BYTES = 64 * 1024
LINE_SHOWN = 300
KILL_SECONDS = 5.0


class Process:
    """One process of the worker program, with a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process, name: str, show: Callable[[str], None]) -> None:
        self._process, self.name, self._show = process, name, show
        self.errors: deque[str] = deque(maxlen=LINES)  # of stderr
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(process.stdout, None)),
            asyncio.create_task(self._read(process.stderr, self.errors)),
        ]

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], name: str, show: Callable[[str], None]
    ) -> Process:
        """Start the program."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **environment},
                limit=LINE_BYTES,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"the command {clipped(command[0])} cannot be started: {why}") from None
        return cls(process, name, show)

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.returncode

    @property
    def last_words(self) -> str:
        """The last line of stderr that is not empty."""
        return next((escaped(one, LINE_SHOWN) for one in reversed(self.errors) if one.strip()), "no output")

    async def _read(self, stream: asyncio.StreamReader, kept: deque[str] | None) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line without an end: the reader has dropped it
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip("\n")
            if kept is not None:
                kept.append(text)
            self._show(f"{self.name}: {escaped(text, LINE_SHOWN)}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def wait(self, seconds: float) -> int | None:
        """Wait for the end; return the exit code, or None when it still runs."""
        try:
            async with asyncio.timeout(seconds):
                code = await self._process.wait()
                await asyncio.wait(self._readers, timeout=seconds)
                return code
        except TimeoutError:
            return None

    async def kill(self) -> None:
        """End the group at once: SIGKILL, which nothing can catch."""
        self.signal(signal.SIGKILL)
        await self.wait(KILL_SECONDS)
        for reader in self._readers:
            reader.cancel()
