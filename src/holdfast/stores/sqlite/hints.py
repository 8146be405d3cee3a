"""Hints that there may be news: after local commits, and when another process has committed.

Never trusted, never needed. `pragma data_version` tells of other connections' commits for the price
of a look into shared memory; it is read on a timer of the event loop, and only while somebody listens
there: one timer a loop, however many listen.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

POLL_SECONDS = 0.015

Listener = tuple[asyncio.AbstractEventLoop, Callable[[], None]]


class Hints:
    """Who listens; and a timer for each event loop that looks for commits of other processes."""

    def __init__(self, data_version: Callable[[], int] | None) -> None:
        self._data_version = data_version
        self._changing = threading.Lock()  # listeners come and go on several event loops
        # Replaced, never changed: the writer's thread reads it at any time.
        self.listeners: tuple[Listener, ...] = ()
        self._watches: list[_Watch] = []

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news; the answer ends it."""
        listener = (asyncio.get_running_loop(), hint)
        with self._changing:
            self.listeners = (*self.listeners, listener)
            self._watch(listener[0])

        def end() -> None:
            with self._changing:
                # By identity: the same hint may have been given twice.
                self.listeners = tuple(each for each in self.listeners if each is not listener)
                self._stop_idle()

        return end

    def close(self) -> None:
        """No timer is left behind."""
        with self._changing:
            self.listeners = ()
            self._stop_idle()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._data_version is not None and not any(watch.loop is loop for watch in self._watches):
            self._watches.append(_Watch(loop, self, self._data_version))

    def _stop_idle(self) -> None:
        used = {id(loop) for loop, _ in self.listeners}
        for watch in self._watches:
            if id(watch.loop) not in used:
                watch.stop()
        self._watches = [watch for watch in self._watches if id(watch.loop) in used]


class _Watch:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, hints: Hints, data_version: Callable[[], int]
    ) -> None:
        self.loop, self._hints, self._data_version = loop, hints, data_version
        self._seen = data_version()
        self._timer = loop.call_later(POLL_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = self.loop.call_later(POLL_SECONDS, self._look)
        if (version := self._data_version()) != self._seen:
            self._seen = version
            for loop, hint in self._hints.listeners:
                if loop is self.loop:
                    hint()

    def stop(self) -> None:
        self._timer.cancel()
