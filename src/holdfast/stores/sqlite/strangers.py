"""Two SQLite libraries in one process do not see each other's locks, and so destroy each other's commits.

The standard library's sqlite3 brings one, apsw another. Locks on a file belong to the process, so each
of the two is given the write lock while the other has it, and whoever closes the file first drops the
locks of both. So in one process a file is used through the one or through the other. Whoever opens a
file of ours by sqlite3 in a process that has it open is stopped there, before anything is damaged.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from holdfast.errors import UsageError

from . import forks

# An apsw that was built on the system's library may be on the very one that Python was built on.
ONE_LIBRARY = not apsw.using_amalgamation and apsw.sqlite_lib_version() == sqlite3.sqlite_version

_seen: set[str] = set()  # files that this process has used through sqlite3
_watching: list[bool] = []


def watch() -> None:
    """From now on, for as long as the process lives: hear of every connection that sqlite3 makes."""
    if not _watching and not ONE_LIBRARY:
        _watching.append(True)
        sys.addaudithook(_heard)


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect" and isinstance(args[0], str | bytes | os.PathLike):
        said = os.fsdecode(args[0])
        refuse_beside_open(unquote(urlsplit(said).path) if said.startswith("file:") else said)


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
            "locks do not hold against the store's: the file would be damaged; use an apsw.Connection"
        )


def refuse_beside_seen(path: str) -> None:
    """No store on a file that was used through sqlite3 here."""
    if os.path.realpath(path) in _seen:
        raise UsageError(
            f"{path}: this process has written here through a sqlite3 connection, whose SQLite library does "
            "not see the store's locks: ask and work in another process, or use an apsw.Connection"
        )
