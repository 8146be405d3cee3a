"""emit, deliver, tick: events from outside and waits that come due, one slice a commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.contract import LIVE_SECONDS, SLICE, SLICES
from holdfast.records import Chore, Due, Emitted, Json, NewEvent, Ticked
from holdfast.stores.pacing import Pace
from holdfast.stores.rounds import EventRound, ticked

from .calls import json_text
from .counts import CountVerbs
from .durations import finite_event

OWING = '{"owing":"00000000-0000-0000-0000-000000000000"}'
BUSY_TRIES = 20  # of half a second each: how often an emit tries a topic that stays locked


class _Place(msgspec.Struct):
    """The number of an event; None: all events had their turn."""

    seq: int | None = None


class _Recorded(msgspec.Struct):
    """An event that is in the inbox."""

    duplicate: bool


class _Delivered(msgspec.Struct):
    """One slice: the runs woken, where it continues, and where the next event is if this one is not done.

    `busy`: another session has the topic, and nothing was done.
    """

    woken: int
    runs: list[UUID] = []
    left: Json | None = None
    next: Json | None = None
    busy: bool = False


class _Lapsed(msgspec.Struct):
    """One slice: the waits settled, their runs, and where the next slice continues."""

    done: int
    runs: list[UUID] = []
    left: Json | None = None


class _Ended(msgspec.Struct):
    """One slice of leases or timeouts: how many, and which runs have failed."""

    done: int
    failed: list[UUID]


_PLACE = msgspec.json.Decoder(_Place)
_RECORDED = msgspec.json.Decoder(_Recorded)
_DELIVERED = msgspec.json.Decoder(_Delivered)
_LAPSED = msgspec.json.Decoder(_Lapsed)
_ENDED = msgspec.json.Decoder(_Ended)
_DUE = msgspec.json.Decoder(Due)


class WaitVerbs(CountVerbs):
    """The verbs of events, waits and chores."""

    _events_seen: int = 0  # the last event that had its turn in a call that was cut short

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            answer = await self._within(connection, "emit", event=finite_event(event))
            return Emitted(None, _RECORDED.decode(answer).duplicate)
        recorded = await self._ask(_RECORDED, "emit_at_once", json_text(finite_event(event)))
        left: Json | None = None
        pace, tries = self._pace(), BUSY_TRIES
        while True:
            size = pace.size(SLICE)
            slice_ = await self._ask(_DELIVERED, "deliver_event", event.tenant, event.id, left, size)
            tries, left = (tries - 1, left) if slice_.busy else (BUSY_TRIES, slice_.left)
            if not tries or (left is None and not slice_.busy):
                return Emitted(slice_.woken, recorded.duplicate)
            await pace.after(slice_.runs)

    async def deliver(self, limit: int = SLICE) -> int:
        return (await self._deliver(limit))[0]

    async def _carry_out(self, limit: int = SLICE) -> int:
        """Carry out the debts of runs to each other, without the events."""
        return (await self._owed(limit, self._pace()))[0]

    async def _owed(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """The same, and return whether more is left."""
        woken, left = 0, OWING
        for _ in range(SLICES):
            slice_ = await self._ask(_DELIVERED, "deliver", left, limit)
            woken += slice_.woken
            if slice_.left is None:
                return woken, False
            if pace.is_over:
                break
            left = slice_.left
        return woken, True

    async def _deliver(self, limit: int) -> tuple[int, bool]:
        """Carry out debts, deliver events, carry out the remaining debts: (runs woken, is more left)."""
        pace = self._pace()
        first, more_owed = await self._owed(limit, pace)
        woken, more = await self._events(limit, pace)
        last = 0
        if woken:
            last, more_owed = await self._owed(limit, pace)
        return first + woken + last, more or more_owed

    async def _events(self, limit: int, pace: Pace) -> tuple[int, bool]:
        """Deliver one slice of each event, from where the last call ended; then take turns with events that
        need several.
        """
        woken, walk = 0, EventRound(self._events_seen)
        cut: deque[Json] = deque()
        for _ in range(SLICES):
            size = pace.size(limit)
            if walk.is_done:
                slice_ = await self._ask(_DELIVERED, "deliver", cut.popleft(), size)
            else:
                slice_ = await self._fresh(walk, size)
            woken += slice_.woken
            if slice_.next is not None and slice_.left is not None and slice_.left not in cut:
                cut.append(slice_.left)
            if walk.is_done and not cut:
                return woken, False
            if pace.is_over:
                break
            await pace.after(slice_.runs)
        return woken, True

    async def _fresh(self, walk: EventRound, size: int) -> _Delivered:
        """Deliver one slice of the next event that has not had its turn, if there is one."""
        while True:
            place = f'{{"seq":{walk.after + 1}}}'
            slice_ = await self._ask(_DELIVERED, "deliver", place, size)
            following = _PLACE.decode(slice_.next or slice_.left or "{}").seq
            event = None if following is None else following - 1
            if walk.goes_to(event) and event is not None:
                walk.after = event
            self._events_seen = walk.after
            if event is not None or walk.is_done or slice_.woken:
                return slice_

    async def tick(
        self, limit: int = SLICE, *, wait_timeouts: bool = True, only: Chore | None = None
    ) -> Ticked:
        limit, failed, more = max(1, limit), list[UUID](), False
        done = dict.fromkeys(Chore, 0)
        for chore in await self._due_chores(wait_timeouts=wait_timeouts) if only is None else (only,):
            if chore is Chore.DELIVER:
                done[chore], cut = await self._deliver(limit)
            elif chore is Chore.COUNT:
                done[chore], cut = await self._fold(self._pace())
            elif chore is Chore.LAPSE:
                done[chore], cut = await self._lapse(limit, wait_timeouts=wait_timeouts)
            else:
                done[chore], ended, cut = await self._ended(chore.value, limit)
                failed += ended
            more = more or cut
        return ticked(done, failed, more=more)

    async def _due_chores(self, *, wait_timeouts: bool) -> list[Chore]:
        look = await self._ask(_DUE, "due", json_text({"types": (), "wait_timeouts": wait_timeouts}))
        due = [chore for chore in Chore if look.is_due(chore)]
        # A run that ends or continues by the other chores may owe news to its parent.
        return due if Chore.DELIVER in due or due in ([], [Chore.COUNT]) else [*due, Chore.DELIVER]

    async def _ended(self, chore: str, limit: int) -> tuple[int, list[UUID], bool]:
        done, failed, pace = 0, list[UUID](), self._pace()
        for _ in range(SLICES):
            slice_ = await self._ask(_ENDED, chore, limit)
            done, failed = done + slice_.done, failed + slice_.failed
            if slice_.done < limit:
                return done, failed, False
            if pace.is_over:
                break
        return done, failed, True

    async def _lapse(self, limit: int, *, wait_timeouts: bool) -> tuple[int, bool]:
        done, left, pace = 0, None, self._pace()
        for _ in range(SLICES):
            slice_ = await self._ask(_LAPSED, "lapse", left, wait_timeouts, pace.size(limit))
            done, left = done + slice_.done, slice_.left
            if left is None:
                return done, False
            if pace.is_over:
                break
            await pace.after(slice_.runs)
        return done, True

    def _pace(self) -> Pace:
        return Pace(self._pending, self._served)

    async def _pending(self, runs: Sequence[UUID]) -> int:
        return int(await self._call("still_pending", json_text(runs)))

    async def _served(self, runs: Sequence[UUID]) -> bool:
        return bool(await self._call("is_served", json_text(runs), LIVE_SECONDS))
