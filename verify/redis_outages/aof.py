"""The append-only file of a Redis server: its last part, and how its size grew."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.02
KEPT_SECONDS = 10.0


def log_file(folder: Path) -> Path:
    """Return the file that the server writes to. Servers since 7 have several files, in a folder."""
    parts = sorted((folder / "appendonlydir").glob("*.incr.aof"), key=_number)
    return parts[-1] if parts else folder / "appendonly.aof"


def _number(file: Path) -> int:
    return int(file.name.split(".")[-3])


def cut(file: Path, lost: int) -> int:
    """Remove up to so many bytes from the end of the file, and return the size that is left."""
    left = max(0, file.stat().st_size - lost)
    os.truncate(file, left)
    return left


class Growth:
    """The size of the file in the last seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: deque[tuple[float, Path, int]] = deque()

    async def watch(self) -> None:
        """Note the size again and again, until it is cancelled."""
        while True:
            # The time is taken first: what was written by then is in the size.
            now, file = time.time(), log_file(self._folder)
            with suppress(FileNotFoundError):  # the server has begun another one
                self._sizes.append((now, file, file.stat().st_size))
            while self._sizes and self._sizes[0][0] < now - KEPT_SECONDS:
                self._sizes.popleft()
            await asyncio.sleep(LOOK_SECONDS)

    def before(self, at: float) -> tuple[float, int]:
        """Return the last look at the present file before a time, or the first: its time and the size."""
        present = [(when, size) for when, file, size in self._sizes if file == log_file(self._folder)]
        return next((one for one in reversed(present) if one[0] <= at), present[0])
