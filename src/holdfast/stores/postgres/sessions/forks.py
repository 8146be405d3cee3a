"""Forks: a child process never uses a session of its parent. Every store forgets its sessions in the child,
and connects again when it is used.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Opened(Protocol):
    """A store that may have sessions."""

    def forget_sessions(self) -> object:
        """Forget the parent's sessions in a child. The returned object must never be touched there."""


_stores: WeakSet[Opened] = WeakSet()
_kept: list[object] = []


def watch(store: Opened) -> None:
    _stores.add(store)


def _in_child() -> None:
    # Kept and not closed: closing would tell the parent's event loop and the server.
    _kept.extend([store.forget_sessions() for store in _stores])


os.register_at_fork(after_in_child=_in_child)
