"""The write-ahead log is kept short, also where readers follow each other so closely that it never ends.

SQLite's own checkpoints wait for nobody: while anyone reads from the log, it only grows (seen: 480 MB in
15 s). Once it is too long the writer waits a little for those who read; who comes meanwhile needs no log.
"""

from __future__ import annotations

import os
import time

from .database import Database

TOO_LONG = 64 << 20
LOOK_EVERY = 64  # commits
WAIT_MS = 1000
PAUSE_SECONDS = 30.0  # after a try that somebody outlasted who reads on and on


def length(path: str) -> int:
    """Of the log beside a database, in bytes; 0 when there is none."""
    try:
        return os.stat(path + "-wal").st_size  # noqa: PTH116 - asked often, and a Path costs more
    except OSError:
        return 0


class Log:
    """The log of one file, as its writer sees it."""

    def __init__(self, path: str, db: Database) -> None:
        self._path, self._db, self._not_before = path, db, 0.0

    def is_too_long(self) -> bool:
        return time.monotonic() >= self._not_before and length(self._path) > TOO_LONG

    def start_anew(self) -> None:
        """Copy all of it into the database; the next commit writes from its beginning."""
        self._not_before = time.monotonic() + PAUSE_SECONDS
        (usual,) = self._db.one("pragma busy_timeout") or (0,)
        self._db.connection.set_busy_timeout(WAIT_MS)
        try:
            row = self._db.one("pragma wal_checkpoint(restart)")
        finally:
            self._db.connection.set_busy_timeout(usual)
        if row is not None and row[0] == 0:
            self._not_before = 0.0
