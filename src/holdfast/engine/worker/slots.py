"""Slots: a slot is free with the commit that ends its run, before that commit is answered.

A worker never executes the code of more runs at once than its slots. A run whose end is on its way to the
store executes nothing any more; the store may count it still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .held_run import HeldRun


class Ends:
    """The held runs whose code has ended. `sent`: how many of them have their last commit on its way."""

    def __init__(self) -> None:
        self._unsent: set[HeldRun] = set()
        self.sent = 0

    def add(self, run: HeldRun) -> None:
        """Note that the code of this run has ended."""
        run.ending = True
        self._unsent.add(run)

    def send(self) -> bool:
        """Note that a commit goes out. Return True when it frees slots."""
        count = len(self._unsent)
        self.sent += count
        self._unsent.clear()
        return count > 0

    def forget(self, run: HeldRun) -> None:
        """Forget a run that is no longer held. Its end was never sent if an item before it was refused."""
        if run in self._unsent:
            self._unsent.discard(run)
        else:
            self.sent -= run.ending
