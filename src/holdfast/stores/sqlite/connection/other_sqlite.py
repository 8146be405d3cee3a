"""The other SQLite library: refuse sqlite3 on a file that a store has open in the same process.

The standard library's sqlite3 brings one SQLite library, apsw another. Two libraries in one process do not
see each other's locks, and destroy each other's commits: file locks belong to the process, so each library
gets the write lock while the other has it, and the first to close the file drops the locks of both. So a
process may use a file through one of the two only. A sqlite3 connection to an open file of a store is refused
before it can do damage.
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

# An apsw that uses the system's SQLite may use the same library as Python.
ONE_LIBRARY = not apsw.using_amalgamation and apsw.sqlite_lib_version() == sqlite3.sqlite_version

_seen: set[str] = set()  # files that this process has used with sqlite3
_watching: list[bool] = []


def watch() -> None:
    """Watch every connection that sqlite3 makes, until the process ends."""
    if not _watching and not ONE_LIBRARY:
        _watching.append(True)
        sys.addaudithook(_check_event)


def _check_event(event: str, args: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect" and isinstance(args[0], str | bytes | os.PathLike):
        name = os.fsdecode(args[0])
        refuse_beside_open(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def is_same(one: str, other: str) -> bool:
    """Return True when two paths name the same file."""
    try:
        return bool(one) and Path(one).samefile(other)
    except OSError:
        return False


def note(path: str) -> None:
    """Remember that this process uses the file with sqlite3."""
    _seen.add(os.path.realpath(path))


def refuse_beside_open(path: str) -> None:
    """Refuse a sqlite3 connection to a file that a store has open in this process."""
    if any(is_same(one, path) for one in forks.open_paths()):
        raise UsageError(
            f"{path}: the store is open in this process, and sqlite3 has an SQLite library of its own, whose "
            "locks do not hold against the store's: the file would be damaged; use an apsw.Connection"
        )


def refuse_beside_seen(path: str) -> None:
    """Refuse a store on a file that this process has used with sqlite3."""
    if os.path.realpath(path) in _seen:
        raise UsageError(
            f"{path}: this process has written here through a sqlite3 connection, whose SQLite library does "
            "not see the store's locks: ask and work in another process, or use an apsw.Connection"
        )
