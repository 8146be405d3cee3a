"""Presence of workers, and wake-ups when there may be news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.records import Presence

LIVE_SECONDS = 45.0  # a worker that was not seen for longer is taken for gone


class Workers(Protocol):
    """Workers announce themselves, for people to see; nothing depends on it."""

    async def present(self, presence: Presence) -> None:
        """Record that a worker is there, now."""

    async def absent(self, worker: str) -> None:
        """Record that a worker has gone."""

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call `hint` on the caller's event loop whenever there may be news: work, an event, an end. It is
        never trusted, never needed, and may come too often. Returns the function that ends it. A store that
        is not open calls nobody, and opens nothing: only `close` would end it.

        holders: called when a leased run may have been moved by somebody other than its holder: cancelled,
        paused, resumed, rewound, deleted or timed out. It comes after few commits only: those with such a
        move, and some when a connection was lost.

        changed: called in place of `hint` when the store knows only that somebody has written something,
        which may be no news at all. A store that always knows more never calls it.
        """

    def hears(self) -> bool:
        """True while hints reach the listeners of this event loop, also those after commits of other
        processes. When it becomes False, or True again, the listeners are called once. While it is False,
        only looks find work, so they come more often.
        """
