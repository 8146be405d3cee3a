"""A sum that several threads add to."""

from __future__ import annotations

import threading


class Tally:
    """A sum that several threads add to: `+=` on an attribute loses what two of them add at once."""

    __slots__ = ("_lock", "_total")

    def __init__(self) -> None:
        self._lock, self._total = threading.Lock(), 0

    def add(self, amount: int) -> int:
        """Add to the sum, and answer the new one."""
        with self._lock:
            self._total += amount
            return self._total
