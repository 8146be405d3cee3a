"""emit, deliver and tick: events and chores, in slices. Other tasks can run in between.

Nothing is copied: all waits that take an event share one text. So a slice is limited only by its number of
waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.contract import SLICE, SLICES
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import Chore, Emitted, Instant, NewEvent, Ticked
from holdfast.stores.pacing import Pace
from holdfast.stores.rounds import ticked

from . import children, delivery, timeouts
from .reads import is_served

if TYPE_CHECKING:
    from .rows import EventRow, State

NO_DATABASE = (
    "the memory store has no database whose transaction could be shared: use a store such as sqlite:///…, "
    'in a rehearsal store="sqlite"'
)


class KeeperVerbs:
    """The verbs emit, deliver and tick, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State
    _events_seen: int = 0  # the last event that a call served before it was cut short

    if TYPE_CHECKING:

        def _hint(self) -> None: ...

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            raise UsageError(NO_DATABASE)
        with self._lock:
            recorded, known = delivery.take_in(self._state, event, self._clock())
            woken = self._slice(recorded, SLICE)
        pace = self._pace()
        while not recorded.delivered:
            await pace.after(woken)
            woken = self._slice(recorded, pace.size(SLICE))
        return Emitted(recorded.woken, known)

    def _slice(self, event: EventRow, limit: int) -> list[UUID]:
        with self._lock:
            woken = delivery.hand_over(self._state, event, self._clock(), limit)
            self._hint()
            return woken

    async def deliver(self, limit: int = SLICE) -> int:
        return (await self._deliver(max(1, limit)))[0]

    async def _deliver(self, limit: int) -> tuple[int, bool]:
        """Carry out what runs owe, deliver events, carry out the rest. Return (runs woken, True if more
        is left)."""
        pace = self._pace()
        first, more_owed = await self._owed(limit, pace)
        woken, more = await self._events(limit, pace)
        last = 0
        if woken:
            last, more_owed = await self._owed(limit, pace)
        return first + woken + last, more or more_owed

    async def _events(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Deliver one slice of each event, from where the last call ended; then those that need more, in
        turns."""
        total, cut = 0, deque["EventRow"]()
        with self._lock:
            events = delivery.undelivered(self._state)
        seen = self._events_seen
        fresh = deque(sorted(events, key=lambda event: (event.seq <= seen, event.seq)))
        for _ in range(SLICES):
            if not fresh and not cut:
                break
            event = (fresh or cut).popleft()
            woken = self._slice(event, pace.size(limit))
            total += len(woken)
            if not event.delivered:
                cut.append(event)
            self._events_seen = event.seq if fresh else 0
            if pace.is_over:
                break
            if fresh or cut:
                await pace.after(woken)
        return total, bool(fresh or cut)

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        woken = 0
        for _ in range(SLICES):
            with self._lock:
                if not children.is_owed(self._state):
                    return woken, False
                woken += children.carry_out_some(self._state, self._clock(), limit)
                self._hint()
                if not children.is_owed(self._state):
                    return woken, False
            if pace.is_over:
                break
            await pace.after(())
        return woken, True

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        limit, failed, more = max(1, limit), set[UUID](), False
        done = dict.fromkeys(Chore, 0)
        for chore in Chore if only is None else (only,):
            cut = False
            if chore is Chore.COUNT:
                pass  # runs are counted when they are asked for: nothing is to be folded
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
        work = timeouts.expire if chore is Chore.EXPIRE else timeouts.time_out
        done, failed, pace = 0, set[UUID](), self._pace()
        for _ in range(SLICES):
            with self._lock:
                rows = work(self._state, self._clock(), limit)
                if rows:
                    self._hint()
            done += len(rows)
            failed |= {row.id for row in rows if row.status is Status.FAILED}
            if len(rows) < limit:
                return done, failed, False
            await pace.after(())
            if pace.is_over:
                break
        return done, failed, True

    async def _lapse(self, limit: int, *, wait_timeouts: bool) -> tuple[int, bool]:
        done, pace = 0, self._pace()
        for _ in range(SLICES):
            with self._lock:
                size = pace.size(limit)
                runs = timeouts.lapse(self._state, self._clock(), size, wait_timeouts=wait_timeouts)
                if runs:
                    self._hint()
            done += len(runs)
            if len(runs) < size:
                return done, False
            if pace.is_over:
                break
            await pace.after(runs)
        return done, True

    def _pace(self) -> Pace:
        return Pace(self._pending, self._served)

    async def _pending(self, runs: Sequence[UUID]) -> int:
        with self._lock:
            return delivery.still_pending(self._state, runs)

    async def _served(self, runs: Sequence[UUID]) -> bool:
        with self._lock:
            return is_served(self._state, runs, self._clock())
