"""What the rounds of keepers have in common on all stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from holdfast.records import Chore, Ticked


class Walk:
    """A walk over the undelivered events by their numbers, once around.

    It begins behind the event where the walk before it was cut short. So events that cannot be delivered now,
    however many there are, do not keep those behind them from their turn.
    """

    def __init__(self, begun: int = 0) -> None:
        self._begun, self._is_around = begun, begun == 0
        self.after = begun  # the last event that had its turn; 0 when all had
        self.is_done = False

    def goes_to(self, event: int | None) -> bool:
        """Whether this event has its turn, the next one behind `after` (None: there is none).

        False: all had theirs (`is_done`), or the walk goes on from the first event. The caller sets `after`.
        """
        if event is None or (self._is_around and event > self._begun > 0):
            self.after, self.is_done, self._is_around = 0, self._is_around, True
            return False
        return True


def ticked(done: Mapping[Chore, int], failed: Iterable[UUID], *, more: bool) -> Ticked:
    """The answer of `tick`."""
    return Ticked(
        expired=done[Chore.EXPIRE],
        timed_out=done[Chore.TIME_OUT],
        lapsed=done[Chore.LAPSE],
        delivered=done[Chore.DELIVER],
        failed=tuple(sorted(set(failed))),
        more=more,
    )
