"""Rounds of keepers: the order in which undelivered events are served, and the answer of `tick`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from holdfast.records import Chore, Ticked


class EventRound:
    """One round over the undelivered events, by number.

    It begins after the event where the last round was cut short. So events that cannot be delivered now,
    however many there are, do not block later events.
    """

    def __init__(self, begun: int = 0) -> None:
        self._begun, self._is_around = begun, begun == 0
        self.after = begun  # the last event that was served; 0 when all were
        self.is_done = False

    def goes_to(self, event: int | None) -> bool:
        """Return True when this event is served next. It is the next one after `after` (None: there is none).

        False: all were served (`is_done`), or the round goes on from the first event. The caller sets
        `after`.
        """
        if event is None or (self._is_around and event > self._begun > 0):
            self.after, self.is_done, self._is_around = 0, self._is_around, True
            return False
        return True


def ticked(done: Mapping[Chore, int], failed: Iterable[UUID], *, more: bool) -> Ticked:
    """Return the answer of `tick`."""
    return Ticked(
        expired=done[Chore.EXPIRE],
        timed_out=done[Chore.TIME_OUT],
        lapsed=done[Chore.LAPSE],
        delivered=done[Chore.DELIVER],
        folded=done[Chore.COUNT],
        failed=tuple(sorted(set(failed))),
        more=more,
    )
