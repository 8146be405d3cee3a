"""Nothing of an open store crosses a fork: in the child it is shut, and says so.

SQLite's locks belong to a process, but what it knows of them is copied into the child: any connection
to that file there would trust locks that it does not have. The writer's thread is not in the child at
all, so a write would wait for ever. And a child that outlives its parent would keep the parent's turn.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from holdfast.errors import Unavailable


class Opened(Protocol):
    """A store that holds a file open."""

    path: str

    def left_behind(self) -> object:
        """Forget, in a child, what the parent holds; the answer must never be closed here."""


_open: WeakSet[Opened] = WeakSet()
_shut: set[str] = set()
_kept: list[object] = []


def opened(store: Opened) -> None:
    _open.add(store)


def closed(store: Opened) -> None:
    _open.discard(store)


def open_paths() -> list[str]:
    """The files that stores of this process have open."""
    return [store.path for store in list(_open)]


def refuse_forked(path: str) -> None:
    """In a child, no connection to a file that the parent had open."""
    if os.path.realpath(path) in _shut:
        raise Unavailable(
            f"{path}: this process was forked from one that has the store open; "
            "open it only after the fork, or start processes by spawn"
        )


def _in_child() -> None:
    for store in list(_open):
        _shut.add(os.path.realpath(store.path))
        _kept.append(store.left_behind())
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
