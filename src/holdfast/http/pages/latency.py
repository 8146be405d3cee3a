"""The time between the wake-up of a run and the claim that follows it, measured while somebody looks.

Each read takes the rows of the trail that are new since the read before, at most ROWS; if there are more, it
begins again with what happens from then on. So it costs the same however long the trail is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from holdfast.contract import Store
from holdfast.records import Tenant, TrailEntry

ROWS = 500
KEPT = 500  # measured times
WOKEN = 2_000  # woken runs that nobody has claimed yet
TENANTS = 100


class Latency(NamedTuple):
    """Two quantiles in seconds, and of how many times."""

    p50: float
    p99: float
    number: int


class _Measured:
    """The times of one tenant."""

    def __init__(self) -> None:
        self.seq: int | None = None
        self.times: deque[float] = deque(maxlen=KEPT)
        self.reading = asyncio.Lock()  # two reads at once would take the same rows
        self._woken: OrderedDict[UUID, datetime] = OrderedDict()

    def take(self, rows: Sequence[TrailEntry]) -> None:
        """Take new rows of the trail, oldest first."""
        for row in rows:
            if row.type == "woken":
                self._woken.setdefault(row.run, row.at)
            elif (at := self._woken.pop(row.run, None)) is not None:
                self.times.append((row.at - at).total_seconds())
        while len(self._woken) > WOKEN:
            self._woken.popitem(last=False)

    def forget_woken(self) -> None:
        """Forget the runs whose claims may have been missed."""
        self._woken.clear()


class Latencies:
    """The measured times of each tenant. One for each server process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of: OrderedDict[Tenant, _Measured] = OrderedDict()

    async def read(self, tenant: Tenant) -> Latency | None:
        """Take what is new; return the quantiles of the last times, or None if there are none."""
        measured = self._of.setdefault(tenant, _Measured())
        self._of.move_to_end(tenant)
        while len(self._of) > TENANTS:
            self._of.popitem(last=False)
        async with measured.reading:
            page = await self._store.follow_all(tenant, ("woken", "leased"), measured.seq, ROWS)
            measured.take(page.entries)
            measured.seq = page.seq
            if page.more:
                measured.seq = None
                measured.forget_woken()
        times = sorted(measured.times)
        if not times:
            return None
        return Latency(times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)], len(times))
