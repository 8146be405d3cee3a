"""Nothing of an open store crosses a fork: the file is closed before it, and opened anew after it by
whoever goes on, parent or child.

SQLite's locks belong to a process, but what it knows of them is copied into the child: any connection
to that file there would trust locks that it does not have. The writer's thread is not in the child at
all, so a write would wait for ever. And a child that outlives its parent would keep the parent's turn.

A store that does not come to rest in time, because the fork happens inside one of its own calls, stays
open in the parent; in the child it is shut, and says so.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import ref

import apsw

from holdfast.errors import Unavailable

from .database import Database
from .guard import INSIDE

PATIENCE_SECONDS = 10.0  # more than a commit may take that waits for its turn and for the lock


class Opened(Protocol):
    """A store that holds a file open."""

    path: str

    def locks(self) -> list[threading.Lock]:
        """Whoever holds them all has the file for himself."""

    def connections(self) -> list[Database]:
        """What is open, to one who holds the locks."""

    def left_behind(self) -> object:
        """Forget, in a child, what the parent holds; the answer must never be closed here."""


_gate = threading.Lock()  # held over a fork: nobody opens a file just then
_open: set[ref[Opened]] = set()
_held: list[threading.Lock] = []
_resting: list[Opened] = []
_shut: set[str] = set()
_kept: list[object] = []


def opening() -> threading.Lock:
    """To be held while a store is opened."""
    return _gate


def opened(store: Opened) -> None:
    _open.add(ref(store, _open.discard))


def closed(store: Opened) -> None:
    _open.discard(ref(store))


def _stores() -> list[Opened]:
    return [store for one in list(_open) if (store := one()) is not None]


def open_paths() -> list[str]:
    """The files that stores of this process have open."""
    return [store.path for store in _stores()]


def refuse_forked(path: str) -> None:
    """In a child, no connection to a file that the parent had open over the fork."""
    if os.path.realpath(path) in _shut:
        raise Unavailable(
            f"{path}: this process was forked inside a call of the store, which its parent has open; "
            "fork elsewhere, open it only after the fork, or start processes by spawn"
        )


def _before() -> None:
    _hold([_gate])
    _resting.extend(store for store in _stores() if _come_to_rest(store))


def _come_to_rest(store: Opened) -> bool:
    if INSIDE.get() == os.path.realpath(store.path) or not _hold(store.locks()):
        return False
    try:
        for connection in store.connections():
            connection.rest()
    except apsw.Error:
        return False
    return True


def _hold(locks: list[threading.Lock]) -> bool:
    """All of them, or as many as can be had in time: until the fork is over."""
    for lock in locks:
        if not lock.acquire(timeout=PATIENCE_SECONDS):
            return False
        _held.append(lock)
    return True


def _in_parent() -> None:
    _resting.clear()
    while _held:
        _held.pop().release()


def _in_child() -> None:
    for store in _stores():
        left = store.left_behind()
        if store not in _resting:
            _shut.add(os.path.realpath(store.path))
            _kept.append(left)
    _open.clear()
    _in_parent()
    if _gate.locked():  # by a thread that is not here
        _gate.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
