"""A temporary SQLite file for one rehearsal.

A SQLite database in memory has one connection, which transactions would share. With a file each transaction
has its own connection, as in production: temporary tables, or a close, do not affect later calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import TemporaryDirectory

from holdfast.records import Instant
from holdfast.stores.sqlite import SqliteStore

MEMORY = "/dev/shm"  # noqa: S108 - a folder with a name of its own is made in it


class TemporarySqliteStore(SqliteStore):
    """A SQLite store that removes its file when it is closed. The file is in memory where that is
    possible.
    """

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._folder = TemporaryDirectory(
            prefix="holdfast-stage-", dir=MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
        )
        super().__init__(f"{self._folder.name}/stage.db", clock=clock, inline=True)

    async def close(self) -> None:
        await super().close()
        self._folder.cleanup()
