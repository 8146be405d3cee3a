"""Hints that there may be news: after local commits, and when another process has committed.

Never trusted, never needed. `pragma data_version` tells of other connections' commits for the price
of a look into shared memory; it is read on a timer of the event loop, and only while somebody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

POLL_SECONDS = 0.015

Listener = tuple[asyncio.AbstractEventLoop, Callable[[], None]]


class Hints:
    """Who listens; and a timer for each that looks for commits of other processes."""

    def __init__(self, data_version: Callable[[], int] | None) -> None:
        self._data_version = data_version
        # Replaced, never changed: the writer's thread reads it at any time.
        self.listeners: tuple[Listener, ...] = ()
        self._watches: list[_Watch] = []

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news; the answer ends it."""
        listener = (asyncio.get_running_loop(), hint)
        self.listeners = (*self.listeners, listener)
        watch = _Watch(*listener, self._data_version) if self._data_version is not None else None
        if watch is not None:
            self._watches.append(watch)

        def end() -> None:
            # By identity: the same hint may have been given twice.
            self.listeners = tuple(each for each in self.listeners if each is not listener)
            if watch is not None:
                watch.stop()

        return end

    def close(self) -> None:
        """No timer is left behind."""
        self.listeners = ()
        for watch in self._watches:
            watch.stop()
        self._watches.clear()


class _Watch:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, hint: Callable[[], None], data_version: Callable[[], int]
    ) -> None:
        self._loop, self._hint, self._data_version = loop, hint, data_version
        self._seen = data_version()
        self._timer = loop.call_later(POLL_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(POLL_SECONDS, self._look)
        if (version := self._data_version()) != self._seen:
            self._seen = version
            self._hint()

    def stop(self) -> None:
        self._timer.cancel()
