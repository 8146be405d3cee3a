"""emit, deliver, tick: what comes from outside and what comes due, a slice a commit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.records import Emitted, Json, NewEvent, Ticked
from holdfast.store import SLICE

from .calls import Calls, json_text
from .numbers import finite_event


class _Recorded(msgspec.Struct):
    """An event that is in the inbox by now."""

    duplicate: bool


class _Delivered(msgspec.Struct):
    """One slice: runs woken, and where the next one is to go on."""

    woken: int
    left: Json | None = None


class _Lapsed(msgspec.Struct):
    """One slice: waits settled, and where the next one is to go on."""

    done: int
    left: Json | None = None


class _Ended(msgspec.Struct):
    """One slice of leases or timeouts: how many, and the runs among them that have failed."""

    done: int
    failed: list[UUID]


_RECORDED = msgspec.json.Decoder(_Recorded)
_DELIVERED = msgspec.json.Decoder(_Delivered)
_LAPSED = msgspec.json.Decoder(_Lapsed)
_ENDED = msgspec.json.Decoder(_Ended)


class WaitsRoom(Calls):
    """A part of the store."""

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        if connection is not None:
            answer = await self._within(connection, "emit", event=finite_event(event))
            return Emitted(None, _RECORDED.decode(answer).duplicate)
        recorded = await self._ask(_RECORDED, "emit_at_once", json_text(finite_event(event)))
        left: Json | None = None
        while True:
            slice_ = await self._ask(_DELIVERED, "deliver_event", event.tenant, event.id, left, SLICE)
            left = slice_.left
            if left is None:
                return Emitted(slice_.woken, recorded.duplicate)

    async def deliver(self, limit: int = SLICE) -> int:
        return await self._deliver(None, limit)

    async def _carry_out(self, limit: int = SLICE) -> int:
        """What runs owe each other, without the events."""
        return await self._deliver('{"owing":"00000000-0000-0000-0000-000000000000"}', limit)

    async def _deliver(self, left: Json | None, limit: int) -> int:
        woken = 0
        while True:
            slice_ = await self._ask(_DELIVERED, "deliver", left, limit)
            woken, left = woken + slice_.woken, slice_.left
            if left is None:
                return woken

    async def tick(self, limit: int = SLICE, *, wait_timeouts: bool = True) -> Ticked:
        if not await self._call("chore_is_due", wait_timeouts):
            return Ticked()
        limit = max(1, limit)
        expired, crashed = await self._ended("expire", limit)
        timed_out, late = await self._ended("time_out", limit)
        return Ticked(
            expired=expired,
            timed_out=timed_out,
            lapsed=await self._lapse(limit, wait_timeouts=wait_timeouts),
            delivered=await self.deliver(limit),
            failed=tuple(sorted([*crashed, *late])),
        )

    async def _ended(self, chore: str, limit: int) -> tuple[int, list[UUID]]:
        done, failed = 0, list[UUID]()
        while True:
            slice_ = await self._ask(_ENDED, chore, limit)
            done, failed = done + slice_.done, failed + slice_.failed
            if slice_.done < limit:
                return done, failed

    async def _lapse(self, limit: int, *, wait_timeouts: bool) -> int:
        done, left = 0, None
        while True:
            slice_ = await self._ask(_LAPSED, "lapse", left, wait_timeouts, limit)
            done, left = done + slice_.done, slice_.left
            if left is None:
                return done
