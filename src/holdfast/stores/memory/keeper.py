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
from holdfast.records import Chore, Emitted, Instant, NewEvent
from holdfast.stores.pacing import Pace
from holdfast.stores.rounds import ChoreRounds

from . import children, delivery, timeouts
from .reads import is_served

if TYPE_CHECKING:
    from .rows import EventRow, RunRow, State

NO_DATABASE = (
    "the memory store has no database whose transaction could be shared: use a store such as sqlite:///…, "
    'in a rehearsal store="sqlite"'
)


class KeeperVerbs(ChoreRounds):
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

    async def _end_some(self, chore: Chore, limit: int) -> tuple[Sequence[RunRow], bool]:
        work = timeouts.expire if chore is Chore.EXPIRE else timeouts.time_out
        with self._lock:
            rows = work(self._state, self._clock(), limit)
            if rows:
                self._hint()
        return rows, len(rows) < limit

    async def _lapse_some(self, limit: int, *, wait_timeouts: bool) -> tuple[Sequence[UUID], bool]:
        with self._lock:
            runs = timeouts.lapse(self._state, self._clock(), limit, wait_timeouts=wait_timeouts)
            if runs:
                self._hint()
        return runs, len(runs) < limit

    async def _pending(self, runs: Sequence[UUID]) -> int:
        with self._lock:
            return delivery.still_pending(self._state, runs)

    async def _served(self, runs: Sequence[UUID]) -> bool:
        with self._lock:
            return is_served(self._state, runs, self._clock())
