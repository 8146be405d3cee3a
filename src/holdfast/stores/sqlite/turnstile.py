"""A turnstile of two file locks: processes that share a database file take turns.

SQLite's own lock goes to whoever happens to try when it is free, so that beside one hot writer
another may starve for seconds. Here everyone passes `next` before he may stand for `turn`: who
has just finished finds the other one in `next` already. Locks of this kind (flock, on descriptors
of our own) vanish with their process, and never touch the database file: closing a descriptor of
that file would drop SQLite's own locks.
"""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.errors import Unavailable

_SHORTEST_NAP, _LONGEST_NAP = 0.000_05, 0.001


class Turnstile:
    """`enter` waits for the turn of this process, `leave` ends it."""

    def __init__(self, path: str, patience_seconds: float) -> None:
        self._path, self._patience = path, patience_seconds
        try:
            self._next = _opened(path + "-next")
            self._turn = _opened(path + "-turn")
        except OSError as error:
            raise Unavailable(f"{path}: its lock files cannot be opened ({error})") from None

    def enter(self) -> None:
        # Who has waited longer for `next` looks more often: of several he is the likeliest to get it.
        self._lock(self._next, _LONGEST_NAP, 0.5)
        try:
            self._lock(self._turn, _SHORTEST_NAP, 2.0)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _lock(self, lock: int, nap: float, growth: float) -> None:
        # Naps, not a blocking flock: they end, also when the process that holds the lock was stopped.
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
