"""Numbers of events. Each store gives its own, so they are translated when runs change stores."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from uuid import UUID

from msgspec.structs import replace

from holdfast.records.transfer import CarriedEvent, CarriedRun, CarriedStep


class _Pairs:
    """Numbers of the source in ascending order, each with its number at the target."""

    def __init__(self) -> None:
        self._from, self._to = array("q"), array("q")
        # The highest number at the target so far: events may have been there before.
        self._newest = array("q")

    def add(self, seq: int, number: int) -> bool:
        """Add a number, or replace it: an event that was purged at the target has another one when it comes
        again. Return True when it is added."""
        at = bisect_right(self._from, seq)
        is_known = at > 0 and self._from[at - 1] == seq
        if is_known:
            at -= 1
            if self._to[at] == number:
                return False
            self._to[at] = number
        else:
            self._from.insert(at, seq)
            self._to.insert(at, number)
            self._newest.insert(at, number)
        for place in range(at, len(self._newest)):
            self._newest[place] = max(self._to[place], self._newest[place - 1] if place else 0)
        return not is_known

    def get(self, seq: int) -> int | None:
        at = bisect_right(self._from, seq)
        return self._to[at - 1] if at and self._from[at - 1] == seq else None

    def newest_up_to(self, seq: int) -> int:
        at = bisect_right(self._from, seq)
        return self._newest[at - 1] if at else 0


_NONE = _Pairs()


class Numbers:
    """The numbers of the source's events at the target. It needs 24 bytes for each event, and more for those
    that are addressed to a run."""

    def __init__(self) -> None:
        self._free = _Pairs()  # of events that are addressed to no run
        self._addressed: dict[UUID, _Pairs] = {}
        self._first: int | None = None  # the lowest number at the target

    def add(self, event: CarriedEvent, number: int) -> bool:
        """Keep the number of an event at the target. Return False for an event that was added before."""
        self._first = number if self._first is None else min(self._first, number)
        pairs = self._free if event.chain is None else self._addressed.setdefault(event.chain, _Pairs())
        return pairs.add(event.seq, number)

    def translated(self, part: CarriedRun) -> CarriedRun:
        """Return a part of a run with the numbers of the target."""
        row, own = part.row, self._addressed.get(part.chain or part.id, _NONE)
        if row is not None:
            row = replace(row, watermark=self._watermark(row.watermark or 0, _NONE))
        steps = part.steps
        if any(step.watermark != 0 or step.took for step in steps):
            steps = tuple([self._step(step, own) for step in steps])
        return replace(part, row=row, steps=steps)

    def _watermark(self, number: int, own: _Pairs) -> int | None:
        """Return the newest event at the target that comes before a number of the source. None: the newest of
        all. Events that the target has recorded itself, before it got those of the source, come first."""
        if self._first is None:
            return None
        return max(self._free.newest_up_to(number), self._first - 1, own.newest_up_to(number))

    def _step(self, step: CarriedStep, own: _Pairs) -> CarriedStep:
        if step.watermark == 0 and not step.took:
            return step
        took = [self._number(seq, own) for seq in step.took]
        return replace(
            step,
            watermark=self._watermark(step.watermark, own) if step.watermark else 0,
            took=tuple([one for one in took if one is not None]),
        )

    def _number(self, seq: int, own: _Pairs) -> int | None:
        """Return the number of one event. None: it was not carried."""
        found = self._free.get(seq)
        return own.get(seq) if found is None else found
