"""Import: a file of `export` into a store. It can be ended at any moment and started again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import UUID

import msgspec

from holdfast.contract import IMPORT_MAX, Store
from holdfast.errors import UsageError
from holdfast.records.transfer import (
    IMPORT,
    CarriedEvent,
    CarriedRun,
    Digest,
    ImportAnswer,
    Imported,
)
from holdfast.sealing import Sealed

from .exporting import stored
from .families import run_of
from .lines import DamagedLine, End, Header, Lines, RunLine, ScheduleLine, header_of, record_of
from .receipts import Before, check_not_overtaken, check_taken, write_taken
from .settings import keep, keep_schedule
from .writing import Writing

REFUSED_MAX = 1000  # refusals and damaged lines that a report names

Progress = Callable[[int], None]
T = TypeVar("T")


class ImportReport(msgspec.Struct, kw_only=True):
    """The numbers of an import. `refused`: runs that were not written, with the reason; the first
    REFUSED_MAX. `damaged`: lines that were skipped."""

    imported: int = 0
    there: int = 0  # runs that were imported before
    # Runs that move and were imported before, and were purged here since: they do not come again.
    gone: int = 0
    refused_runs: int = 0
    events: int = 0
    schedules: int = 0  # schedules that were made, and are paused
    refused: list[Imported] = []
    damaged: list[str] = []
    missing: str = ""  # with skip_damaged: whether lines are missing, beside those that were skipped
    notes: list[str] = []  # settings that are otherwise at the target
    complete: bool = False  # the file was read to its last line, and no line is missing
    waits: bool = False  # the runs leave their source: they wait here until it has recorded that


class Importer:
    """Reads one file."""

    def __init__(
        self, store: Store, by: str = IMPORT, *, hold: bool, skip_damaged: bool, here: str, receipt: str
    ) -> None:
        self._store, self._skip = stored(store), skip_damaged
        self._is_sealed = isinstance(store, Sealed)
        self._writing = Writing(self._store, by, hold=hold)
        self._events: list[CarriedEvent] = []
        self._digests: dict[UUID, Digest] = {}  # of large runs that are not complete yet
        self._move, self._here, self._receipt = "", here, receipt
        self._refused: list[UUID] = []
        self._before: Before | None = None  # an earlier import of runs that move
        self._path = Path()
        self._numbers: list[int] = []  # the lines of the runs, and of the events, that are not written yet
        self._event_numbers: list[int] = []
        self._has_ended = False
        self.report = ImportReport()

    async def read(self, path: Path, progress: Progress | None) -> ImportReport:
        try:
            file = path.open("rb")
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        with file:
            await self._read(file, path, progress)
        if self.report.waits:
            write_taken(path, self._move, self._here, self._refused, self._receipt)
        return self.report

    async def _read(self, file: BinaryIO, path: Path, progress: Progress | None) -> None:
        lines, name = Lines(file), str(path)
        self._path = path
        self._check(header_of(lines.first(), name), name)
        if self._move:
            self._before = await check_taken(self._store, path, self._move, self._here)
        while (text := lines.next()) is not None:
            try:
                record = record_of(text, lines.number)
                self._check_record(record, lines.number)
                if isinstance(record, End):
                    await self._flush()
                    self._check_end(record, lines)
                else:
                    await self._take(record, lines.number, len(text))
            except DamagedLine as error:
                await self._skip_line(error)
            if progress is not None and lines.number % IMPORT_MAX == 0:
                progress(self.report.imported + self.report.there)
        await self._flush()
        if not self.report.complete:
            self._incomplete(name)

    async def _skip_line(self, error: DamagedLine) -> None:
        """Leave out a damaged line, or end the import there. The lines before it are written."""
        if not self._skip:
            await self._flush()
            skip = "" if self._move else ", or leave damaged lines out (--skip-damaged)"
            raise DamagedLine(
                error.number, f"{error.why}; the lines before it are imported; bring the file again{skip}"
            )
        self._note(self.report.damaged, str(error))

    def _check(self, header: Header, name: str) -> None:
        self._move, self.report.waits = header.move, bool(header.move)
        if header.move and not self._path.is_file():
            raise UsageError(
                f"{name} holds runs that move: give the file itself, which is read several times"
            )
        if header.move and self._skip:
            # The source would record that a run has left whose line was left out.
            raise UsageError(
                f"{name} holds runs that move, so no line may be left out: copy the file again, without "
                "damage, or undo the move at the source (export --undo)"
            )
        if self._is_sealed and not header.sealed:
            raise UsageError(
                f"{name} holds plain values, and this store is encrypted: import it into a store without "
                "keys, or export it from an encrypted one"
            )

    def _check_record(self, record: Any, number: int) -> None:
        """Check that a line may come here, and compare the digest of a run with its content."""
        if self._has_ended:
            raise DamagedLine(number, "it comes after the last line of an export")
        if isinstance(record, Header):
            raise DamagedLine(number, "it is the first line of an export")
        if not isinstance(record, RunLine):
            return
        part = record.run
        if part.is_first and part.row is None:
            self._digests.clear()  # the parts of one run follow each other
        digest = Digest() if part.is_first else self._digests.pop(part.id, None)
        if digest is None:
            raise DamagedLine(number, f"a part of run {part.id} is missing before it")
        digest.add(part)
        if part.row is None:
            self._digests[part.id] = digest
        elif digest.text != part.digest:
            raise DamagedLine(number, f"run {part.id} is not what was exported: its digest differs")

    def _check_end(self, end: End, lines: Lines) -> None:
        self._has_ended = True
        self.report.complete = end.sha256 == lines.sha256 and end.lines == lines.number - 1
        if not self.report.complete and not self._skip:
            raise UsageError(
                "the file is not what was exported: lines are missing, or were added or changed; all that "
                "could be read is imported"
            )
        if end.lines != lines.number - 1:
            found = lines.number - 1
            self.report.missing = f"{found:,} lines are before the last one, and {end.lines:,} were exported"

    def _incomplete(self, name: str) -> None:
        if self._skip and not self._has_ended:
            self.report.missing = "the file ends before its last line: what was behind it is missing"
        elif not self._skip:
            raise UsageError(
                f"{name} ends before its last line: continue its export (--resume), and import it again; "
                "all that could be read is imported"
            )

    async def _take(self, record: Any, number: int, size: int) -> None:
        if isinstance(record, CarriedEvent):
            if self._before is not None and not self._before.has_refused:
                return  # no run needs it, and it may have been delivered and purged
            self._events.append(record)
            self._event_numbers.append(number)
            if len(self._events) >= IMPORT_MAX:
                await self._flush_events()
        elif isinstance(record, RunLine):
            await self._take_run(record.run, number, size)
        else:
            try:
                if isinstance(record, ScheduleLine):
                    self.report.schedules += await keep_schedule(self._store, record)
                    return
                why = await keep(self._store, record)
            except UsageError as error:
                raise DamagedLine(number, str(error)) from None
            if why is not None:
                self._note(self.report.notes, why)

    async def _take_run(self, part: CarriedRun, number: int, size: int) -> None:
        if self._before is not None and part.id in self._before.runs:
            await self._pass_over(part)
            return
        if self._events:
            await self._flush_events()
        if self._writing.is_full(size):
            await self._flush()
        self._writing.add(part, size)
        self._numbers.append(number)

    async def _pass_over(self, part: CarriedRun) -> None:
        """Count a run that came before."""
        if part.row is None:
            return
        if await run_of(self._store, part.id) is None:
            self.report.gone += 1
        else:
            self.report.there += 1

    async def _flush_events(self) -> None:
        events, self._events = self._events, []
        numbers, self._event_numbers = self._event_numbers, []
        before = self._writing.events_written
        if events:
            await self._write(events, numbers, self._writing.events)
        self.report.events += self._writing.events_written - before

    async def _flush(self) -> None:
        await self._flush_events()
        parts, numbers, self._numbers = self._writing.taken(), self._numbers, []
        await self._write(parts, numbers, self._write_runs)

    async def _write_runs(self, parts: Sequence[CarriedRun]) -> None:
        if self._move and self._before is None:
            check_not_overtaken(self._path, self._move)
        self._count(await self._writing.write(parts))

    async def _write(
        self, records: Sequence[T], numbers: Sequence[int], write: Callable[[Sequence[T]], Awaitable[None]]
    ) -> None:
        """Write records together. If the store refuses one, write them one by one, to name its line."""
        try:
            await write(records)
            return
        except UsageError:
            pass
        for record, number in zip(records, numbers, strict=True):
            try:
                await write([record])
            except UsageError as error:
                damaged = DamagedLine(number, str(error))
                if not self._skip:
                    raise damaged from None
                self._note(self.report.damaged, str(damaged))

    def _count(self, answers: list[Imported]) -> None:
        for one in answers:
            match one.answer:
                case ImportAnswer.IMPORTED:
                    self.report.imported += 1
                case ImportAnswer.THERE:
                    self.report.there += 1
                case ImportAnswer.REFUSED:
                    self.report.refused_runs += 1
                    self._refused.append(one.run)
                    self._note(self.report.refused, one)
                case ImportAnswer.PART:
                    pass

    @staticmethod
    def _note(kept: list[Any], one: Any) -> None:
        if len(kept) < REFUSED_MAX:
            kept.append(one)
