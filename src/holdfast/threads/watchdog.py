"""A thread that hears signals while the event loop is blocked: after the second one the process ends in time.

A loop calls its signal handlers between two callbacks. A step that blocks it (`time.sleep`, a query without
await) holds them up as long as it blocks. The interpreter tells a wakeup file of each signal at once: this
thread reads there, counts, and hands on to the loop what the loop would have read.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress

from holdfast.escaping import safe_logger

log = safe_logger("holdfast")

FLUSH_SECONDS = 0.2  # what open output may take; whoever blocks the loop may hold its lock


class Watchdog:
    """Ends the process so many seconds after the second of these signals, unless `end` came first."""

    def __init__(self, numbers: Iterable[signal.Signals], limit_seconds: float) -> None:
        self._numbers, self._limit = frozenset(map(int, numbers)), limit_seconds
        self._over, self._once = threading.Event(), threading.Lock()

    def begin(self) -> None:
        """Hear signals from now on. In the main thread, after the loop has begun to hear them."""
        self._reads, self._writes = socket.socketpair()
        self._writes.settimeout(0)
        self._before = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        # A copy: the loop may close its own, and its number may then be another file's.
        self._loops = os.dup(self._before)
        threading.Thread(target=self._listen, name="holdfast-signals", daemon=True).start()

    def end(self) -> None:
        """The work is over: the loop alone hears signals, if it is open still. In the main thread."""
        self._over.set()
        there = signal.set_wakeup_fd(-1)
        # Another file: somebody else's, since then. None: the loop has closed, and its file with it.
        if there != -1:
            before = self._before if there == self._writes.fileno() else there
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        self._writes.close()

    def arm(self) -> None:
        """The process is to end in time, whatever happens. Again, and nothing changes."""
        if self._once.acquire(blocking=False):
            threading.Thread(target=self._bite, name="holdfast-end", daemon=True).start()

    def _listen(self) -> None:
        heard = 0
        while data := self._reads.recv(64):
            with suppress(OSError):  # it is full, and will look anyway
                os.write(self._loops, data)
            heard += sum(number in self._numbers for number in data)
            if heard >= 2:  # the first asks for a graceful stop
                self.arm()
        os.close(self._loops)
        self._reads.close()

    def _bite(self) -> None:
        if self._over.wait(self._limit):
            return
        log.warning(
            "the process does not end: its event loop is blocked, or a thread does not return. "
            "Runs that it still holds go on when their leases have ended"
        )
        flushing = threading.Thread(target=_flush, name="holdfast-flush", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
