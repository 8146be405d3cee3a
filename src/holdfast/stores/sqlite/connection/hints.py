"""Hints: wake-ups for listeners after commits of this process and of other processes.

A hint only says that there may be news. Nothing depends on it. `pragma data_version` shows commits of other
connections, for the price of a read of shared memory. It is read on a timer of the event loop, one timer for
each loop, and only while the loop has listeners.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

POLL_SECONDS = 0.015

Listener = tuple[asyncio.AbstractEventLoop, Callable[[], None]]


class Hints:
    """The listeners, and for each event loop a timer that looks for commits of other processes."""

    def __init__(self, data_version: Callable[[], int] | None) -> None:
        self._data_version = data_version
        self._changing = threading.Lock()  # listeners come and go on several event loops
        # Replaced, never changed: the writer's thread reads it at any time.
        self.listeners: tuple[Listener, ...] = ()
        self._watches: list[_Watch] = []

    def listen(self, hint: Callable[[], None]) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news. Return a function that ends it."""
        listener = (asyncio.get_running_loop(), hint)
        with self._changing:
            self.listeners = (*self.listeners, listener)
            self._watch(listener[0])

        def end() -> None:
            with self._changing:
                # Compared by identity: the same hint may be registered twice.
                self.listeners = tuple(each for each in self.listeners if each is not listener)
                self._stop_idle()

        return end

    def close(self) -> None:
        """Remove all listeners and stop all timers."""
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
