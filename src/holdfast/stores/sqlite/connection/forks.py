"""Forks: the file of an open store is closed before a fork and opened again after it, by parent and child.

An open file must not cross a fork, for three reasons. SQLite's locks belong to a process, but SQLite's
knowledge of them is copied into the child: a connection there would trust locks that it does not have. The
writer thread does not exist in the child, so a write would wait for ever. And a child that outlives its
parent would keep the turn of the parent.

A store that cannot be closed in time, because the fork happens inside one of its own calls, stays open in the
parent. In the child it refuses to work, with an error.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import ref

import apsw

from holdfast.errors import Unavailable
from holdfast.stores.sqlite.transactions.guard import INSIDE

from .database import Database

PATIENCE_SECONDS = 10.0  # more than a commit may take that waits for its turn and for the write lock


class Opened(Protocol):
    """A store that holds a file open."""

    path: str

    def locks(self) -> list[threading.Lock]:
        """Return all locks of the store. The thread that holds them all is the only one that uses the
        file."""

    def connections(self) -> list[Database]:
        """Return the open connections. The caller must hold the locks."""

    def left_behind(self) -> object:
        """Forget, in a child, the objects of the parent. Return them: they must never be closed in the
        child."""


class _Fork(threading.local):
    """The fork that this thread makes. Several threads may fork at once: each gives back only its own."""

    def __init__(self) -> None:
        self.held: list[threading.Lock] = []
        self.resting: list[Opened] = []


_gate = threading.Lock()  # held during a fork, so that no store is opened then, and no other fork begins
_fork = _Fork()
_open: set[ref[Opened]] = set()
_shut: set[str] = set()
_kept: list[object] = []


def opening() -> threading.Lock:
    """Return the lock that must be held while a store is opened."""
    return _gate


def opened(store: Opened) -> None:
    _open.add(ref(store, _open.discard))


def closed(store: Opened) -> None:
    _open.discard(ref(store))


def _stores() -> list[Opened]:
    return [store for one in list(_open) if (store := one()) is not None]


def open_paths() -> list[str]:
    """Return the files that stores of this process have open."""
    return [store.path for store in _stores()]


def refuse_forked(path: str) -> None:
    """In a child, refuse a file that the parent had open during the fork."""
    if os.path.realpath(path) in _shut:
        raise Unavailable(
            f"{path}: this process was forked inside a call of the store, which its parent has open; "
            "fork elsewhere, open it only after the fork, or start processes by spawn"
        )


def _before() -> None:
    if _hold([_gate]):
        _fork.resting.extend(store for store in _stores() if _come_to_rest(store))


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
    """Take locks until the fork is over. Return False when one of them cannot be had in time."""
    for lock in locks:
        if not lock.acquire(timeout=PATIENCE_SECONDS):
            return False
        _fork.held.append(lock)
    return True


def _in_parent() -> None:
    _fork.resting.clear()
    while _fork.held:
        _fork.held.pop().release()


def _in_child() -> None:
    for store in _stores():
        left = store.left_behind()
        if store not in _fork.resting:
            _shut.add(os.path.realpath(store.path))
            _kept.append(left)
    _open.clear()
    _in_parent()
    if _gate.locked():  # held by a thread that does not exist in the child
        _gate.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
