"""Two SQLite libraries in one process do not see each other's locks, and so destroy each other's commits.

The standard library's sqlite3 brings one, apsw another. Locks on a file belong to the process, so each
of the two is given the write lock while the other has it, and whoever closes the file first drops the
locks of both. So in one process a file is used through the one or through the other.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import UsageError

from . import forks

_seen: set[str] = set()  # files that this process has used through sqlite3


def is_same(one: str, other: str) -> bool:
    """Whether two paths name one file."""
    try:
        return bool(one) and Path(one).samefile(other)
    except OSError:
        return False


def note(path: str) -> None:
    """This process uses the file through sqlite3."""
    _seen.add(os.path.realpath(path))


def refuse_beside_open(path: str) -> None:
    """No connection of sqlite3's on a file that a store has open here."""
    if any(is_same(one, path) for one in forks.open_paths()):
        raise UsageError(
            f"{path}: the store is open in this process, and sqlite3 has an SQLite library of its own, whose "
            "locks do not hold against the store's: give an apsw.Connection"
        )


def refuse_beside_seen(path: str) -> None:
    """No store on a file that was used through sqlite3 here."""
    if os.path.realpath(path) in _seen:
        raise UsageError(
            f"{path}: this process has written here through a sqlite3 connection, whose SQLite library does "
            "not see the store's locks: ask and work in another process, or use an apsw.Connection"
        )
