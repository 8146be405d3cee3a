"""A sum that several threads add to."""

from __future__ import annotations

import threading


class SharedCounter:
    """A sum that several threads add to. A lock guards it: `+=` on an attribute loses simultaneous
    additions.
    """

    __slots__ = ("_lock", "_total")

    def __init__(self) -> None:
        self._lock, self._total = threading.Lock(), 0

    def add(self, amount: int) -> int:
        """Add to the sum and return the new sum."""
        with self._lock:
            self._total += amount
            return self._total
