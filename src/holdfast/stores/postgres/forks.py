"""No session crosses a fork: in the child every store forgets what it has, and connects anew when asked."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Opened(Protocol):
    """A store that may have sessions."""

    def left_behind(self) -> object:
        """Forget, in a child, what the parent has; the answer must never be touched here."""


_stores: WeakSet[Opened] = WeakSet()
_kept: list[object] = []


def watched(store: Opened) -> None:
    _stores.add(store)


def _in_child() -> None:
    # Kept, not closed: closing would tell the parent's event loop, and the server.
    _kept.extend([store.left_behind() for store in _stores])


os.register_at_fork(after_in_child=_in_child)
