"""A thread that receives signals while the event loop is blocked, and ends the process after the second one.

A loop calls its signal handlers between two callbacks. A step that blocks the loop (`time.sleep`, a query
without await) delays them as long as it blocks. The interpreter writes each signal to a wakeup file at once:
this thread reads that file, counts the signals, and passes the bytes on to the loop.
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

FLUSH_SECONDS = 0.2  # limit for flushing output; the code that blocks the loop may hold the output's lock


class Watchdog:
    """A watchdog that ends the process `limit_seconds` after the second signal, unless `end` is called
    first.
    """

    def __init__(self, numbers: Iterable[signal.Signals], limit_seconds: float) -> None:
        self._numbers, self._limit = frozenset(map(int, numbers)), limit_seconds
        self._over, self._once = threading.Event(), threading.Lock()

    def begin(self) -> None:
        """Start to receive signals. Call it in the main thread, after the loop has installed its handlers."""
        self._reads, self._writes = socket.socketpair()
        self._writes.settimeout(0)
        self._before = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        # A duplicate: the loop may close its file, and the number may then belong to another file.
        self._loops = os.dup(self._before)
        threading.Thread(target=self._listen, name="holdfast-signals", daemon=True).start()

    def end(self) -> None:
        """Stop: the loop alone receives signals, if it is still open. Call it in the main thread."""
        self._over.set()
        there = signal.set_wakeup_fd(-1)
        # Another file: other code has set it since. None: the loop has closed, and its file with it.
        if there != -1:
            before = self._before if there == self._writes.fileno() else there
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        self._writes.close()

    def arm(self) -> None:
        """End the process after the limit, whatever happens. A second call changes nothing."""
        if self._once.acquire(blocking=False):
            threading.Thread(target=self._end_process, name="holdfast-end", daemon=True).start()

    def _listen(self) -> None:
        received = 0
        while data := self._reads.recv(64):
            with suppress(OSError):  # the loop's file is full: the loop will read it anyway
                os.write(self._loops, data)
            received += sum(number in self._numbers for number in data)
            if received >= 2:  # the first signal asks for a graceful stop
                self.arm()
        os.close(self._loops)
        self._reads.close()

    def _end_process(self) -> None:
        if self._over.wait(self._limit):
            return
        log.warning(
            "the process does not end: its event loop is blocked, or a thread does not return. "
            "Other workers continue its runs when their leases expire"
        )
        flushing = threading.Thread(target=_flush, name="holdfast-flush", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
