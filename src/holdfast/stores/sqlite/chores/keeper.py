"""emit, deliver and tick: events and chores, in slices of one commit each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.contract import FOLD_MAX, SLICE, SLICES
from holdfast.records import Chore, Emitted, Instant, NewEvent, Ticked
from holdfast.records.sizes import payload_bytes
from holdfast.stores.pacing import Pace
from holdfast.stores.rounds import EventRound, ticked
from holdfast.stores.sqlite.connection.database import Database
from holdfast.stores.sqlite.reads import is_served

from . import children, delivery, folding, inbox, timeouts

if TYPE_CHECKING:
    from holdfast.stores.sqlite.connection.writer import Work

T = TypeVar("T")


class KeeperVerbs:
    """The verbs emit, deliver and tick, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _events_seen: int = 0  # the last event that a call served before it was cut short

    if TYPE_CHECKING:

        async def _write(
            self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0
        ) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        def _in_caller_transaction(self, connection: Any, work: Work[T]) -> T: ...

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            _, known = self._in_caller_transaction(connection, lambda db, now: inbox.take_in(db, now, event))
            return Emitted(None, known)
        seq, duplicate, part = await self._write(
            lambda db, now: delivery.emit(db, now, event, SLICE), news=True, size=payload_bytes(event)
        )
        if part.left is None and not duplicate:
            return Emitted(part.reached, duplicate)
        pace = self._pace()
        while part.left is not None:
            await pace.after(part.woken)
            # The size is a guess: that of the last slice. By it the writer lets small commits go first.
            work = partial(_hand_over, pace.size(SLICE), part.left)
            part = await self._write(work, news=True, size=part.copied)
        return Emitted(self._read(inbox.woken, seq), duplicate)

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
        woken, events = 0, EventRound(self._events_seen)
        cut: deque[delivery.Slice] = deque()
        for _ in range(SLICES):
            size = pace.size(limit)
            if self._has_fresh(events):
                part, events.after = await self._write(
                    partial(_hand_over_fresh, size, events.after), news=True
                )
                self._events_seen = events.after
            elif cut:
                last = cut.popleft()
                assert last.left is not None
                part = await self._write(partial(_hand_over, size, last.left), news=True, size=last.copied)
            else:
                return woken, False
            woken += len(part.woken)
            if part.left is not None:
                cut.append(part)
            if pace.is_over:
                break
            await pace.after(part.woken)
        return woken, True

    def _has_fresh(self, events: EventRound) -> bool:
        """Return True when there is an event that this round has not served."""
        while not events.is_done:
            if events.goes_to(self._read(inbox.undelivered, events.after + 1)):
                return True
            self._events_seen = events.after
        return False

    async def _carry_out(self, limit: int = SLICE) -> int:
        """Carry out what runs owe, in slices of one commit each. Return how many parents were woken."""
        return (await self._owed(max(1, limit), self._pace()))[0]

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Do the same. Return also True if more is left."""
        woken = 0
        for _ in range(SLICES):
            if not self._read(children.owing):
                return woken, False
            woken += await self._write(lambda db, now: children.carry_out(db, now, limit), news=True)
            if pace.is_over:
                break
        return woken, True

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        limit, failed, more = max(1, limit), list[UUID](), False
        done = dict.fromkeys(Chore, 0)
        for chore in Chore if only is None else (only,):
            if not self._read(partial(timeouts.is_due, wait_timeouts=wait_timeouts), self._clock(), chore):
                continue
            if chore is Chore.DELIVER:
                done[chore], cut = await self._deliver(limit)
            elif chore is Chore.COUNT:
                done[chore], cut = await self._fold()
            elif chore is Chore.LAPSE:
                done[chore], cut = await self._lapse(limit, wait_timeouts=wait_timeouts)
            else:
                done[chore], ended, cut = await self._ended(chore, limit)
                failed += ended
            more = more or cut
        return ticked(done, failed, more=more)

    async def _ended(self, chore: Chore, limit: int) -> tuple[int, list[UUID], bool]:
        work = timeouts.expire if chore is Chore.EXPIRE else timeouts.time_out
        total, failed, pace = 0, list[UUID](), self._pace()
        for _ in range(SLICES):
            done, ended = await self._write(lambda db, now: work(db, now, limit), news=True)
            total, failed = total + done, failed + ended
            if done < limit:
                return total, failed, False
            if pace.is_over:
                break
        return total, failed, True

    async def _lapse(self, limit: int, *, wait_timeouts: bool) -> tuple[int, bool]:
        total, pace = 0, self._pace()
        for _ in range(SLICES):
            lapse = partial(_lapse, pace.size(limit), wait_timeouts=wait_timeouts)
            runs, cut = await self._write(lapse, news=True)
            total += len(runs)
            if not cut:
                return total, False
            if pace.is_over:
                break
            await pace.after(runs)
        return total, True

    async def _fold(self) -> tuple[int, bool]:
        """Fold the changes of the counts. Return how many, and True if more may be left."""
        total, pace = 0, self._pace()
        for _ in range(SLICES):
            done = await self._write(folding.fold)
            total += done
            if done < FOLD_MAX:
                return total, False
            if pace.is_over:
                break
        return total, True

    def _pace(self) -> Pace:
        return Pace(self._pending, self._served)

    async def _pending(self, runs: Sequence[str]) -> int:
        return self._read(inbox.still_pending, runs)

    async def _served(self, runs: Sequence[str]) -> bool:
        return self._read(is_served, runs, self._clock())


def _hand_over(limit: int, event: int, db: Database, now: Instant) -> delivery.Slice:
    return delivery.hand_over(db, now, limit, event)


def _hand_over_fresh(limit: int, after: int, db: Database, now: Instant) -> tuple[delivery.Slice, int]:
    return delivery.hand_over_fresh(db, now, limit, after)


def _lapse(limit: int, db: Database, now: Instant, *, wait_timeouts: bool) -> tuple[list[str], bool]:
    return timeouts.lapse(db, now, limit, wait_timeouts=wait_timeouts)
