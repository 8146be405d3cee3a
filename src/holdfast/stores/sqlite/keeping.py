"""emit, deliver, tick: what comes from outside and what comes due, a slice a commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.contract import SLICE, SLICES
from holdfast.records import Chore, Emitted, Instant, NewEvent, Ticked
from holdfast.records.sizes import payload_bytes
from holdfast.stores.pacing import Pace
from holdfast.stores.rounds import Walk, ticked

from . import children, chores, inbox, waits
from .database import Database
from .reads import is_served

if TYPE_CHECKING:
    from .writer import Work

T = TypeVar("T")


class KeeperRoom:
    """A part of the store."""

    _clock: Callable[[], Instant]
    _events_seen: int = 0  # the last event that had its turn in a call that was cut short

    if TYPE_CHECKING:

        async def _write(
            self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0
        ) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        def _as_guest(self, connection: Any, work: Work[T]) -> T: ...

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            _, known = self._as_guest(connection, lambda db, now: inbox.take_in(db, now, event))
            return Emitted(None, known)
        seq, duplicate, part = await self._write(
            lambda db, now: waits.emit(db, now, event, SLICE), news=True, size=payload_bytes(event)
        )
        if part.left is None and not duplicate:
            return Emitted(part.reached, duplicate)
        pace = self._pace()
        while part.left is not None:
            await pace.after(part.woken)
            # The size is a guess, that of the last slice: the writer lets small commits pass.
            work = partial(_hand_over, pace.size(SLICE), part.left)
            part = await self._write(work, news=True, size=part.copied)
        return Emitted(self._read(inbox.woken, seq), duplicate)

    async def deliver(self, limit: int = SLICE) -> int:
        return (await self._deliver(max(1, limit)))[0]

    async def _deliver(self, limit: int) -> tuple[int, bool]:
        """Carry out what runs owe, deliver events, carry out the rest: (runs woken, is more left)."""
        pace = self._pace()
        first, more_owed = await self._owed(limit, pace)
        woken, more = await self._events(limit, pace)
        last = 0
        if woken:
            last, more_owed = await self._owed(limit, pace)
        return first + woken + last, more or more_owed

    async def _events(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """One slice of each, from where the last call ended; then by turns those that take several."""
        woken, walk = 0, Walk(self._events_seen)
        cut: deque[waits.Slice] = deque()
        for _ in range(SLICES):
            size = pace.size(limit)
            if self._has_fresh(walk):
                part, walk.after = await self._write(partial(_hand_over_fresh, size, walk.after), news=True)
                self._events_seen = walk.after
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

    def _has_fresh(self, walk: Walk) -> bool:
        """Whether an event is left that has not had its turn."""
        while not walk.is_done:
            if walk.goes_to(self._read(inbox.undelivered, walk.after + 1)):
                return True
            self._events_seen = walk.after
        return False

    async def _carry_out(self, limit: int = SLICE) -> int:
        """Carry out what runs owe, one slice a commit."""
        return (await self._owed(max(1, limit), self._pace()))[0]

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """The same, and whether more is left."""
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
            if not self._read(partial(chores.is_due, wait_timeouts=wait_timeouts), self._clock(), chore):
                continue
            if chore is Chore.DELIVER:
                done[chore], cut = await self._deliver(limit)
            elif chore is Chore.LAPSE:
                done[chore], cut = await self._lapse(limit, wait_timeouts=wait_timeouts)
            else:
                done[chore], ended, cut = await self._ended(chore, limit)
                failed += ended
            more = more or cut
        return ticked(done, failed, more=more)

    async def _ended(self, chore: Chore, limit: int) -> tuple[int, list[UUID], bool]:
        work = chores.expire if chore is Chore.EXPIRE else chores.time_out
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

    def _pace(self) -> Pace:
        return Pace(self._pending, self._served)

    async def _pending(self, runs: Sequence[str]) -> int:
        return self._read(inbox.still_pending, runs)

    async def _served(self, runs: Sequence[str]) -> bool:
        return self._read(is_served, runs, self._clock())


def _hand_over(limit: int, event: int, db: Database, now: Instant) -> waits.Slice:
    return waits.hand_over(db, now, limit, event)


def _hand_over_fresh(limit: int, after: int, db: Database, now: Instant) -> tuple[waits.Slice, int]:
    return waits.hand_over_fresh(db, now, limit, after)


def _lapse(limit: int, db: Database, now: Instant, *, wait_timeouts: bool) -> tuple[list[str], bool]:
    return chores.lapse(db, now, limit, wait_timeouts=wait_timeouts)
