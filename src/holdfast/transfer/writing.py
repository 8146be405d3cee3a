"""Whole runs and events into a store: many in one commit, with the numbers of events translated."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import IMPORT_MAX, Store
from holdfast.records.transfer import IMPORT, CarriedEvent, CarriedRun, Imported
from holdfast.records.transfer_sizes import part_bytes

from .numbers import Numbers


class Writing:
    """Writes runs and events into one store. Events must come before the runs that may take them."""

    def __init__(self, store: Store, by: str = IMPORT, *, hold: bool = True) -> None:
        self._store, self._by, self._hold = store, by, hold
        self._numbers = Numbers()
        self._parts: list[CarriedRun] = []
        self._bytes = 0
        self.events_written = 0  # an event that is written again counts once

    async def events(self, events: Sequence[CarriedEvent]) -> None:
        """Write a page of events."""
        for at in range(0, len(events), IMPORT_MAX):
            some = events[at : at + IMPORT_MAX]
            for event, number in zip(some, await self._store.import_events(some), strict=True):
                self.events_written += self._numbers.add(event, number)

    async def run(self, part: CarriedRun) -> list[Imported]:
        """Write a run or a part of one, perhaps later. Return the answers that have come."""
        size = part_bytes(part)
        answers = await self.flush() if self.is_full(size) else []
        self.add(part, size)
        return answers

    def is_full(self, size: int) -> bool:
        """Return True when the parts that were added must be written before one of this size is added."""
        is_large = self._bytes + size > BATCH_BYTES // 2
        return len(self._parts) >= IMPORT_MAX or (bool(self._parts) and is_large)

    def add(self, part: CarriedRun, size: int) -> None:
        """Add a part to the next commit. `size`: about how many bytes it has."""
        self._parts.append(self._numbers.translated(part))
        self._bytes += size

    async def flush(self) -> list[Imported]:
        """Write what is left."""
        return await self.write(self.taken())

    def taken(self) -> list[CarriedRun]:
        """Return the parts that were added, which the caller writes."""
        parts, self._parts, self._bytes = self._parts, [], 0
        return parts

    async def write(self, parts: Sequence[CarriedRun]) -> list[Imported]:
        """Write parts in one commit."""
        return list(await self._store.import_runs(parts, self._by, hold=self._hold)) if parts else []
