"""End the process at the first signal, whatever its main thread does.

The interpreter calls signal handlers in the main thread, between two instructions. A signal that comes just
before a blocking call, or while a library blocks in C, is then noticed only when that call returns. The
interpreter also writes each signal to a wakeup file at once: a thread reads that file.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterable

from .forked_signals import keep_signals_in_children, reset_signals_in_children


class ExitAtSignal:
    """The process ends with code 0 at one of these signals, between `begin` and `end`. Use it in the main
    thread. Code that installs handlers of its own meanwhile, as an event loop does, takes over.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)
        self._before = {number: signal.getsignal(number) for number in self._numbers}
        self._reads, self._writes = socket.socketpair()
        self._writes.settimeout(0)
        threading.Thread(target=self._listen, name="holdfast-exit", daemon=True).start()

    def begin(self) -> None:
        """Start to receive signals, also after other code has taken over."""
        reset_signals_in_children(self._numbers)
        for number in self._numbers:
            signal.signal(number, self._exit)
        signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)

    def end(self) -> None:
        """Restore the handlers that were there when this was made."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        keep_signals_in_children()
        self._writes.close()

    def _listen(self) -> None:
        while data := self._reads.recv(64):
            if any(signal.getsignal(number) == self._exit for number in self._numbers if number in data):
                self._exit()
        self._reads.close()

    def _exit(self, *_: object) -> None:
        os._exit(0)
