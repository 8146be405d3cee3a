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

_FIRST_NAP, _LONGEST_NAP = 0.000_05, 0.001


class Turnstile:
    """`enter` waits for the turn of this process, `leave` ends it."""

    def __init__(self, path: str, patience_seconds: float) -> None:
        self._path, self._patience = path, patience_seconds
        self._next = _opened(path + "-next")
        self._turn = _opened(path + "-turn")

    def enter(self) -> None:
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            self._stand()
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def _stand(self) -> None:
        # Only one stands here at a time, so naps cost no fairness; and unlike a blocking flock they
        # end, when the process whose turn it is was stopped.
        nap, patience = _FIRST_NAP, self._patience
        while True:
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if patience <= 0:
                    raise Unavailable(
                        f"{self._path}: another process has kept its turn for {self._patience:g} s; "
                        "look for one that is stopped"
                    ) from None
                time.sleep(nap)
                patience -= nap
                nap = min(2 * nap, _LONGEST_NAP)
            else:
                return

    def leave(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._next)
        os.close(self._turn)


def _opened(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
