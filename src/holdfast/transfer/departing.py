"""Export of runs that move: each group is stopped at the source before it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO
from uuid import UUID

from holdfast.contract import Store
from holdfast.errors import Conflict
from holdfast.records import Instant, Run, RunFilter
from holdfast.records.transfer import MOVE, MOVING, CarriedEvent

from .exporting import Exporter, Progress
from .families import groups_of, pages_of
from .leaving import away, bring_back, stop
from .lines import MOVES, Header, RunLine
from .places import goes_to, is_away
from .reading import events_of
from .receipts import file_name
from .settings import pause_schedules, paused_for


class MoveExporter(Exporter):
    """Writes a file of runs that leave the store. It can be ended at any moment and goes on later."""

    def __init__(self, store: Store, where: RunFilter | None, move: str, by: str = MOVE) -> None:
        super().__init__(store, where, mask=False)
        self._move, self._by = move, by
        self._written: set[UUID] = set()

    def _header(self, format: int, at: Instant, move: str = "") -> Header:
        self._move = move or self._move
        return Header(
            format=MOVES, exported_at=at, whole=self._where is None, sealed=self._sealed, move=self._move
        )

    def _remember(self, record: CarriedEvent | RunLine) -> None:
        super()._remember(record)
        if isinstance(record, RunLine):
            self._written.add(record.run.id)

    async def _prepare(self) -> None:
        if self._where is None:
            await pause_schedules(self._store, paused_for(file_name(self._move)))

    async def _write_rest(self, file: BinaryIO, progress: Progress | None) -> None:
        to = file_name(self._move)
        for pages in (away(self._store, self._where, to), self._candidates(to)):
            async for group in groups_of(self._store, pages):
                await self._put_group(file, group, to)
                if progress is not None:
                    progress(self._runs)

    async def _candidates(self, to: str) -> AsyncIterator[Sequence[Run]]:
        async for page in pages_of(self._store, self._where):
            found = []
            for run in page:
                other = goes_to(run) if is_away(run) else None
                if other in {None, to}:
                    found.append(run)
                elif run.pause_asked_by == MOVING:
                    self._elsewhere[other] = self._elsewhere.get(other, 0) + 1
            if found:
                yield found

    async def _put_group(self, file: BinaryIO, group: Sequence[UUID], to: str) -> None:
        stopped, refused = await stop(self._store, group, to, self._by)
        if refused:
            fresh = [one for one in stopped if one.run not in self._written]
            await bring_back(self._store, [(one.run, one.departure) for one in fresh], self._by)
            raise Conflict(f"run {refused[0].run} cannot leave: {refused[0].reason}")
        runs = [one.run for one in stopped if one.answer == "leaving" and one.run not in self._written]
        if not runs:
            return
        whole = self._where is None
        async for page in events_of(self._store, after=self._last_event, addressed=whole):
            self._put_events(file, page)
            self._last_event = page[-1].seq
        async for part in self._parts(runs):
            await self._put_run(file, part, along=False)
        self._written.update(runs)
