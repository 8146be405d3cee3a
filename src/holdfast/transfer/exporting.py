"""Export: a store, or some of its runs, into a file. It can be ended at any moment and goes on later."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.contract import EXPORT_MAX, Store
from holdfast.errors import UsageError
from holdfast.records import ANY, Instant, Json, RunFilter
from holdfast.records.transfer import CarriedEvent, CarriedRun, Digest
from holdfast.sealing import Sealed
from holdfast.sealing.carried import Reseal
from holdfast.sealing.encrypt import ENVIRONMENT
from holdfast.sealing.envelope import hidden_by

from .lines import (
    COPY,
    HEADER,
    DamagedLine,
    End,
    Header,
    Lines,
    RunLine,
    ScheduleLine,
    header_of,
    line_of,
    made,
    record_of,
    synced,
)
from .masking import masked_event, masked_params, masked_run
from .reading import events_of, ids_of, runs_of
from .settings import Setting, settings_of

LOOKED_AT = 20  # runs whose values say whether a store is encrypted

Progress = Callable[[int], None]


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of an export: of all that is in the file, also if it was written in several goes.
    `elsewhere`: targets of other moves that were not ended, with the number of runs that are on their way
    there, and so are not in a file of runs that move."""

    runs: int
    events: int
    bytes: int
    sha256: str
    elsewhere: dict[str, int] = {}


def stored(store: Store) -> Store:
    """Return the store that has the values as they are stored, sealed or not."""
    return store.inner if isinstance(store, Sealed) else store


class Exporter:
    """Writes one file."""

    def __init__(self, store: Store, where: RunFilter | None, *, mask: bool) -> None:
        self._store, self._where, self._mask = stored(store), where, mask
        self._has_keys = isinstance(store, Sealed)
        self._sealed = self._has_keys and not mask
        # Encrypted values are opened before they are masked.
        self._opens = Reseal(store.chain, None) if isinstance(store, Sealed) and mask else None
        self._digest = hashlib.sha256()
        self._lines = self._runs = self._events = self._bytes = 0
        self._last: UUID | None = None  # the last run whose turn has come
        self._last_event = 0
        self._chains: set[UUID] = set()  # chains whose first run was written, and the present one with it
        self._along: set[UUID] = set()  # runs that were written before their turn
        self._elsewhere: dict[str, int] = {}  # runs that are on the way to other targets

    async def write(self, path: Path, *, resume: bool, progress: Progress | None) -> ExportReport:
        """Write the file. resume: go on with a file that is not complete."""
        await self._look_at_values()
        file, is_new = _opened(path, resume=resume)
        with file:
            if is_new:
                self._put(file, self._header(COPY, await self._store.now()))
                # Runs that leave are found again by the header: it is on disk before one is stopped.
                synced(file)
            if is_new or not self._read(file, str(path)):
                await self._prepare()
                async for setting in settings_of(self._store):
                    self._put(file, self._shown(setting))
            await self._write_rest(file, progress)
            report = ExportReport(
                runs=self._runs, events=self._events, bytes=self._bytes, sha256=self._digest.hexdigest(),
                elsewhere=self._elsewhere,
            )  # fmt: skip
            end = End(runs=self._runs, events=self._events, lines=self._lines, sha256=report.sha256)
            self._put(file, end)
            synced(file)
        return report

    async def _look_at_values(self) -> None:
        """Find out whether values are encrypted, if this process has no keys: those of the newest runs say
        it."""
        if self._has_keys:
            return
        where = replace(self._where or RunFilter(tenant=ANY), values=True)
        for run in await self._store.list(where, LOOKED_AT):
            if by := hidden_by(run.params_json):
                self._sealed = not self._mask
                self._refuse_masking(by)

    def _refuse_masking(self, by: str) -> None:
        if self._mask and self._opens is None:
            raise UsageError(
                f"values in this store are encrypted ({by}), so they can be masked only with its keys: give "
                f"them, in {ENVIRONMENT}, or as the codec of the app"
            )

    def _check_open(self, *values: Json | None) -> None:
        """Check that values which are masked are not encrypted."""
        if self._opens is None:
            for value in values:
                if value is not None and (by := hidden_by(value)):
                    self._refuse_masking(by)

    def _shown(self, setting: Setting) -> Setting:
        if not self._mask or not isinstance(setting, ScheduleLine):
            return setting
        params = setting.params
        self._check_open(params)
        if self._opens is not None:
            params = self._opens.schedule_params(params, setting.tenant, setting.name)
        return replace(setting, params=masked_params(params))

    async def _prepare(self) -> None:
        """Do what has to be done before the first setting is read."""

    def _header(self, format: int, at: Instant, move: str = "") -> Header:
        """Return the first line of the file. `move`: of the file that is there already."""
        return Header(
            format=COPY, exported_at=at, whole=self._where is None, sealed=self._sealed, masked=self._mask
        )

    def _put(self, file: BinaryIO, record: object) -> None:
        line = line_of(record)
        file.write(line)
        self._digest.update(line)
        self._lines += 1
        self._bytes += len(line)

    async def _write_rest(self, file: BinaryIO, progress: Progress | None) -> None:
        whole = self._where is None
        async for page in events_of(self._store, after=self._last_event, addressed=whole):
            self._put_events(file, page)
        async for ids in self._ids():
            async for part in self._parts(ids):
                if part.id not in self._along:
                    await self._put_with_chain(file, part)
            if progress is not None:
                progress(self._runs)

    async def _put_with_chain(self, file: BinaryIO, part: CarriedRun) -> None:
        """Write a run in its turn. The first run of its chain comes before it, the present one right behind
        the first: at the target neither can do without the other."""
        if part.chain is not None and part.chain not in self._chains and part.is_first:
            await self._put_along(file, part.chain)
        if part.id in self._along:
            return
        await self._put_run(file, part, along=False)
        if part.row is not None and part.row.goes_on_as is not None and part.id not in self._chains:
            self._chains.add(part.id)
            await self._put_along(file, part.row.goes_on_as)

    async def _put_along(self, file: BinaryIO, run: UUID) -> None:
        if run in self._along:
            return
        self._along.add(run)
        async for part in self._parts([run]):
            await self._put_run(file, part, along=True)
            if part.row is not None and part.row.goes_on_as is not None:
                self._chains.add(part.id)
                await self._put_along(file, part.row.goes_on_as)

    async def _put_run(self, file: BinaryIO, part: CarriedRun, *, along: bool) -> None:
        if self._where is not None and part.is_first and part.chain is None:
            async for page in events_of(self._store, chain=part.id):
                self._put_events(file, page)
        self._put(file, RunLine(run=part, along=along))
        self._runs += part.row is not None

    def _put_events(self, file: BinaryIO, page: Sequence[CarriedEvent]) -> None:
        for event in page:
            if not self._mask:
                self._put(file, event)
                continue
            self._check_open(event.payload)
            self._put(file, masked_event(event if self._opens is None else self._opens.event(event)))
        self._events += len(page)

    async def _parts(self, ids: Sequence[UUID]) -> AsyncIterator[CarriedRun]:
        digest = Digest()
        async for part in runs_of(self._store, ids):
            if not self._mask:
                yield part
                continue
            if part.is_first:
                digest = Digest()
            row = part.row
            self._check_open(*(one.output for one in part.steps), *((row.params, row.result) if row else ()))
            hidden = masked_run(part if self._opens is None else self._opens.part(part))
            digest.add(hidden)
            yield hidden if part.row is None else replace(hidden, digest=digest.text)

    async def _ids(self) -> AsyncIterator[Sequence[UUID]]:
        """Yield the runs that are asked for, in pages."""
        if self._where is None:
            async for ids in ids_of(self._store, after=self._last):
                yield ids
            return
        where = replace(self._where, values=False)
        while found := await self._store.list(where, EXPORT_MAX, self._last):
            yield [run.id for run in found]
            self._last = found[-1].id

    def _read(self, file: BinaryIO, name: str) -> bool:
        """Read a file that is not complete, and go on behind its last run, or behind its last event. Without
        any of these it goes on behind its header: False."""
        lines = Lines(file)
        header = header_of(lines.first(), name)
        if not self._has_keys:
            self._sealed = header.sealed
        if header != self._header(header.format, header.exported_at, header.move):
            raise UsageError(f"{name} was begun with other options: go on with the same ones")
        kept = begin = lines.place
        self._note_lines(lines)
        whole = _Complete()
        try:
            while (text := lines.next()) is not None:
                record = record_of(text, lines.number)
                if isinstance(record, End):
                    raise UsageError(f"{name} is complete: give another name")
                found = whole.take(record)
                for one in found:
                    self._remember(one)
                if found:
                    kept = lines.place
                    self._note_lines(lines)
        except DamagedLine:
            pass  # the last line, which was not written to its end
        file.seek(kept)
        file.truncate()
        return kept > begin

    def _remember(self, record: CarriedEvent | RunLine) -> None:
        """Take over an event or a run that is in the file."""
        if isinstance(record, CarriedEvent):
            self._events += 1
            if record.chain is None or self._where is None:
                self._last_event = max(self._last_event, record.seq)
            return
        run, row = record.run, record.run.row
        self._runs += 1
        if record.along:
            self._along.add(run.id)
        else:
            self._last = run.id
        if row is not None and row.goes_on_as is not None:
            self._chains.add(run.id)

    def _note_lines(self, lines: Lines) -> None:
        """Take over the lines that were read so far."""
        self._digest, self._lines, self._bytes = lines.digest(), lines.number, lines.place


def _opened(path: Path, *, resume: bool) -> tuple[BinaryIO, bool]:
    """Return the file, and True when it is new. A file whose header was not written to its end is new."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file that can be read again: give the name of a new file")
        if not (resume and path.exists()):
            return made(path), True
        file = path.open("r+b")
    except FileExistsError:
        raise UsageError(f"{path} is there already: give another name, or continue it (--resume)") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    begin = Lines(file).first()
    file.seek(0)
    is_new = not begin.endswith(b"\n") and (begin.startswith(HEADER) or HEADER.startswith(begin))
    if is_new:
        file.truncate()
    return file, is_new


class _Complete:
    """The events and runs of a file that is read again: a run counts when all its parts are there, and the
    first run of a chain when the present one is there too."""

    def __init__(self) -> None:
        self._waiting: list[CarriedEvent | RunLine] = []
        self._owed: UUID | None = None  # the present run of a chain whose first run was read

    def take(self, record: object) -> list[CarriedEvent | RunLine]:
        """Return the records that are complete with this one."""
        if isinstance(record, CarriedEvent):
            self._waiting.append(record)
        elif isinstance(record, RunLine) and record.run.row is not None:
            self._waiting.append(record)
            if self._owed == record.run.id:
                self._owed = None
            elif record.run.row.goes_on_as is not None:
                self._owed = record.run.row.goes_on_as
        else:
            return []
        if self._owed is not None:
            return []
        found, self._waiting = self._waiting, []
        return found
