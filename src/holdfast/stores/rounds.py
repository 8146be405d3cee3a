"""Rounds of keepers: the order in which undelivered events are served, the chores of `tick`, its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from holdfast.contract import SLICE, SLICES
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.machine.rows import RunRow
from holdfast.records import Chore, Ticked

from .pacing import Pace


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


class ChoreRounds:
    """The verbs `deliver` and `tick` of a store that does its chores in slices, as a mixin.

    The counts of such a store need no folding.
    """

    async def _end_some(self, chore: Chore, limit: int) -> tuple[Sequence[RunRow], bool]:
        """End leases that are over, or runs whose timeout has passed. Return the runs, and True when there
        are no more."""
        raise NotImplementedError

    async def _lapse_some(self, limit: int, *, wait_timeouts: bool) -> tuple[Sequence[UUID], bool]:
        """Settle due waits. Return their runs, and True when there are no more."""
        raise NotImplementedError

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Carry out what runs owe. Return how many were woken, and True if more is left."""
        raise NotImplementedError

    async def _events(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Deliver events. Return how many runs were woken, and True if more is left."""
        raise NotImplementedError

    async def _pending(self, runs: Sequence[UUID]) -> int:
        """Return how many of these runs no worker has claimed."""
        raise NotImplementedError

    async def _served(self, runs: Sequence[UUID]) -> bool:
        """Return True when a live worker can claim any of these runs."""
        raise NotImplementedError

    def _pace(self) -> Pace:
        return Pace(self._pending, self._served)

    async def deliver(self, limit: int = SLICE) -> int:
        return (await self._deliver(max(1, limit)))[0]

    async def _deliver(self, limit: int) -> tuple[int, bool]:
        """Carry out what runs owe, deliver events, carry out the rest. Return (runs woken, True if more
        is left)."""
        pace = self._pace()
        broken: Unavailable | None = None
        first, more_owed = 0, True
        try:
            first, more_owed = await self._owed(limit, pace)
        except Unavailable as error:  # runs that change all the time must not stop events of others
            broken = error
        woken, more = await self._events(limit, pace)
        if broken is not None:
            raise broken
        last = 0
        if woken:
            last, more_owed = await self._owed(limit, pace)
        return first + woken + last, more or more_owed

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        limit, failed, more = max(1, limit), set[UUID](), False
        done = dict.fromkeys(Chore, 0)
        for chore in Chore if only is None else (only,):
            cut = False
            if chore is Chore.COUNT:
                pass
            elif chore is Chore.DELIVER:
                done[chore], cut = await self._deliver(limit)
            elif chore is Chore.LAPSE:
                done[chore], cut = await self._lapse(limit, wait_timeouts=wait_timeouts)
            else:
                done[chore], ended, cut = await self._ended(chore, limit)
                failed |= ended
            more = more or cut
        return ticked(done, failed, more=more)

    async def _ended(self, chore: Chore, limit: int) -> tuple[int, set[UUID], bool]:
        done, failed, pace = 0, set[UUID](), self._pace()
        for _ in range(SLICES):
            rows, is_last = await self._end_some(chore, limit)
            done += len(rows)
            failed |= {row.id for row in rows if row.status is Status.FAILED}
            if is_last:
                return done, failed, False
            await pace.after(())
            if pace.is_over:
                break
        return done, failed, True

    async def _lapse(self, limit: int, *, wait_timeouts: bool) -> tuple[int, bool]:
        done, pace = 0, self._pace()
        for _ in range(SLICES):
            runs, is_last = await self._lapse_some(pace.size(limit), wait_timeouts=wait_timeouts)
            done += len(runs)
            if is_last:
                return done, False
            if pace.is_over:
                break
            await pace.after(runs)
        return done, True
