"""When a slot is free again: with the commit that ends its run, before the answer to that has come.

A worker never executes the code of more runs at once than its slots. A run whose end is on its way to the
store executes nothing any more; the store may count it still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .held import HeldRun


class Ends:
    """The held runs whose code has ended. `sent`: how many of those have their end on its way."""

    def __init__(self) -> None:
        self._unsent: set[HeldRun] = set()
        self.sent = 0

    def add(self, run: HeldRun) -> None:
        """The code of this run has come to its end."""
        run.ending = True
        self._unsent.add(run)

    def send(self) -> bool:
        """A commit goes out; whether it frees slots."""
        count = len(self._unsent)
        self.sent += count
        self._unsent.clear()
        return count > 0

    def forget(self, run: HeldRun) -> None:
        """The run is no longer held. Its end was never sent if an item before it was refused."""
        if run in self._unsent:
            self._unsent.discard(run)
        else:
            self.sent -= run.ending
