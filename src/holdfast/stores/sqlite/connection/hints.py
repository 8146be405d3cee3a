"""Hints: wake-ups for listeners after commits of this process and of other processes.

A hint only says that there may be news. Nothing depends on it. `pragma data_version` shows commits of other
connections, for the price of a read of shared memory. It is read on a timer of the event loop, one timer for
each loop, and only while the loop has listeners.

A second kind of hint says that a leased run may have been moved by somebody other than its holder. A count in
the file shows it, which is read after a change.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

POLL_SECONDS = 0.015

Hint = Callable[[], None]
Listener = tuple[asyncio.AbstractEventLoop, Hint, Hint | None, Hint]


class Hints:
    """The listeners, and for each event loop a timer that looks for commits of other processes."""

    def __init__(self, data_version: Callable[[], int] | None, holder_calls: Callable[[], int]) -> None:
        """`data_version`: None for a store without a timer, which no other process uses."""
        self._data_version, self._holder_calls = data_version, holder_calls
        self._calls = 0  # the count that listeners without a timer were told of
        self._changing = threading.Lock()  # listeners come and go on several event loops
        # Replaced, never changed: the writer's thread reads it at any time.
        self.listeners: tuple[Listener, ...] = ()
        self._watches: list[_Watch] = []

    def listen(
        self, hint: Hint, holders: Hint | None = None, changed: Hint | None = None
    ) -> Callable[[], None]:
        """Call `hint` on this event loop whenever there may be news, and `holders` when a leased run may have
        been moved. `changed` is called in place of `hint` when somebody has written to the file. Return a
        function that ends it.
        """
        listener = (asyncio.get_running_loop(), hint, holders, changed or hint)
        with self._changing:
            self.listeners = (*self.listeners, listener)
            self._watch(listener[0])

        def end() -> None:
            with self._changing:
                # Compared by identity: the same hint may be registered twice.
                self.listeners = tuple(each for each in self.listeners if each is not listener)
                self._stop_idle()

        return end

    def after_commit(self) -> list[tuple[asyncio.AbstractEventLoop, Hint]]:
        """Return the hints to give after a commit of this process that brings news. Where a timer runs, it
        finds calls of holders."""
        told = [(loop, hint) for loop, hint, _, _ in self.listeners]
        if self._data_version is None and any(one[2] is not None for one in self.listeners):
            seen, self._calls = self._calls, self._holder_calls()
            if seen != self._calls:
                told += [(loop, holders) for loop, _, holders, _ in self.listeners if holders is not None]
        return told

    @property
    def watched(self) -> bool:
        """True when a timer of this event loop looks for commits of other processes, if there can be any."""
        loop = asyncio.get_running_loop()
        return self._data_version is None or any(watch.loop is loop for watch in self._watches)

    def close(self) -> None:
        """Remove all listeners and stop all timers."""
        with self._changing:
            self.listeners = ()
            self._stop_idle()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._data_version is not None and not any(watch.loop is loop for watch in self._watches):
            self._watches.append(_Watch(loop, self, self._data_version, self._holder_calls))

    def _stop_idle(self) -> None:
        used = {id(loop) for loop, *_ in self.listeners}
        for watch in self._watches:
            if id(watch.loop) not in used:
                watch.stop()
        self._watches = [watch for watch in self._watches if id(watch.loop) in used]


class HintVerbs:
    """The verbs of listeners, as a mixin of the store."""

    _hints: Hints
    _writer: object | None  # None: the store is not open

    def listen(
        self, hint: Hint, holders: Hint | None = None, changed: Hint | None = None
    ) -> Callable[[], None]:
        if self._writer is None:  # nobody would stop the timer
            return lambda: None
        return self._hints.listen(hint, holders, changed)

    def hears(self) -> bool:
        return self._hints.watched


class _Watch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hints: Hints,
        data_version: Callable[[], int],
        holder_calls: Callable[[], int],
    ) -> None:
        self.loop, self._hints, self._data_version = loop, hints, data_version
        self._holder_calls = holder_calls
        self._seen, self._calls = data_version(), holder_calls()
        self._timer = loop.call_later(POLL_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = self.loop.call_later(POLL_SECONDS, self._look)
        if (version := self._data_version()) != self._seen:
            self._seen = version
            here = [one for one in self._hints.listeners if one[0] is self.loop]
            for *_, changed in here:
                changed()
            called = [holders for _, _, holders, _ in here if holders is not None]
            if called and (calls := self._holder_calls()) != self._calls:
                self._calls = calls
                for holders in called:
                    holders()

    def stop(self) -> None:
        self._timer.cancel()
