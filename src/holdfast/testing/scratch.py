"""A SQLite file for one stage: in memory there is one connection, which a transaction would have to share.

What its function leaves on the connection, or does to it, is then gone after the call, as in production.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import TemporaryDirectory

from holdfast.records import Instant
from holdfast.stores.sqlite import SqliteStore

MEMORY = "/dev/shm"  # noqa: S108 - a folder with a name of its own is made in it


class ScratchStore(SqliteStore):
    """It goes with its file when it is closed. Where there are files in memory, it is one of these."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._folder = TemporaryDirectory(
            prefix="holdfast-stage-", dir=MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
        )
        super().__init__(f"{self._folder.name}/stage.db", clock=clock, inline=True)

    async def close(self) -> None:
        await super().close()
        self._folder.cleanup()
