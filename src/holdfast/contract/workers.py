"""Which workers there are, and how they hear that there may be news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.records import Presence

LIVE_SECONDS = 45.0  # a worker whose presence is older than this is taken for gone


class Workers(Protocol):
    """Workers announce themselves, for people to see; nothing depends on it."""

    async def present(self, presence: Presence) -> None:
        """Note that a worker is there, now."""

    async def absent(self, worker: str) -> None:
        """Note that a worker has gone."""

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on the caller's event loop whenever there may be news: work, an event, an
        end. Never trusted, never needed, may come too often. Answers the call that ends it."""
