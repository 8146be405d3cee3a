"""The write-ahead log (WAL): kept short, even when readers follow each other without a gap.

SQLite's own checkpoints do not wait for readers: while any reader uses the log, the log only grows (measured:
480 MB in 15 s). When the log is too long, the writer waits a little for the current readers. Readers that
come meanwhile do not need the log.
"""

from __future__ import annotations

import os
import time

from .database import Database

TOO_LONG = 64 << 20
LOOK_EVERY = 64  # commits
WAIT_MS = 1000
PAUSE_SECONDS = 30.0  # after an attempt that failed because a reader did not finish


def length(path: str) -> int:
    """Return the size of the log of a database in bytes; 0 when there is none."""
    try:
        return os.stat(path + "-wal").st_size  # noqa: PTH116 - called often, and a Path is slower
    except OSError:
        return 0


class WriteAheadLog:
    """The log of one file, for its writer."""

    def __init__(self, path: str, db: Database) -> None:
        self._path, self._db, self._not_before = path, db, 0.0

    def is_too_long(self) -> bool:
        return time.monotonic() >= self._not_before and length(self._path) > TOO_LONG

    def restart(self) -> None:
        """Copy the log into the database, so that the next commit writes from the beginning of the log."""
        self._not_before = time.monotonic() + PAUSE_SECONDS
        (usual,) = self._db.one("pragma busy_timeout") or (0,)
        self._db.connection.set_busy_timeout(WAIT_MS)
        try:
            row = self._db.one("pragma wal_checkpoint(restart)")
        finally:
            self._db.connection.set_busy_timeout(usual)
        if row is not None and row[0] == 0:
            self._not_before = 0.0
