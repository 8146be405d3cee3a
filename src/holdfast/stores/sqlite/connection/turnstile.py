"""The turnstile: processes that share a database file write in turns, by two file locks.

SQLite gives its own lock to the process that tries at the right moment, so beside one busy writer another may
starve for seconds. Here a process must hold `next` before it may wait for `turn`: only one process at a
time waits for `turn`. A process that has just
finished finds the other process already in `next`, and has to wait behind it.

The locks are flocks on separate lock files. They vanish with their process. They never touch the database
file: closing any descriptor of that file would drop SQLite's own locks.
"""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.errors import Unavailable

_SHORTEST_NAP, _LONGEST_NAP = 0.000_05, 0.001


class Turnstile:
    """`enter` waits for the turn of this process. `leave` ends the turn."""

    def __init__(self, path: str, patience_seconds: float) -> None:
        self._path, self._patience = path, patience_seconds
        try:
            self._next = _opened(path + "-next")
            self._turn = _opened(path + "-turn")
        except OSError as error:
            raise Unavailable(f"{path}: its lock files cannot be opened ({error})") from None

    def enter(self) -> None:
        # A process that has waited longer for `next` tries more often, so it is the likeliest to get it.
        self._lock(self._next, _LONGEST_NAP, 0.5)
        try:
            self._lock(self._turn, _SHORTEST_NAP, 2.0)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _lock(self, lock: int, nap: float, growth: float) -> None:
        # Sleeps, not a blocking flock: they end even when the process that holds the lock was stopped.
        patience = self._patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if patience <= 0:
                    raise Unavailable(
                        f"{self._path}: another process has kept its turn for {self._patience:g} s; "
                        "look for one that is stopped, unless it brings the file to a new version"
                    ) from None
                time.sleep(nap)
                patience -= nap
                nap = min(max(nap * growth, _SHORTEST_NAP), _LONGEST_NAP)
            else:
                return

    def leave(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._next)
        os.close(self._turn)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
