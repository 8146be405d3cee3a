"""import, and the verbs of export, import and move: whole runs and events into the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from msgspec.structs import astuple

from holdfast.bounds import BATCH_BYTES
from holdfast.decoding import decode_untyped
from holdfast.machine import carrying as machine
from holdfast.machine.view import Data
from holdfast.records import Counted, Instant, Json, MessageStatus
from holdfast.records.transfer import (
    IMPORT,
    CarriedEvent,
    CarriedMessage,
    CarriedRow,
    CarriedRun,
    CarriedStep,
    Exported,
    Imported,
    Place,
    Relocated,
)
from holdfast.records.transfer_sizes import event_bytes, part_bytes
from holdfast.stores.carrying import on_hold, step_row
from holdfast.stores.relocating import Relocating, Relocation, until_busy

from . import outbox
from .chores.folding import SQL as COUNTS
from .connection.database import Database, Row, text
from .rows import stored_key
from .transfer_reads import FIELDS, export_events, export_runs
from .transfer_reads import SQL as _SQL
from .view import machine_rows
from .view.machine_rows import INSERT_STEP, RunRow, new_step, uuid_of
from .view.saving import HALF_GONE
from .view.starts import START
from .view.view import SqliteView

if TYPE_CHECKING:
    from .connection.writer import Work

T = TypeVar("T")

SLOT = 10_000_000  # microseconds: see whole_counts.sql
_fields = attrgetter(*FIELDS)
_KEY, _UPDATED_AT, _WATERMARK, _ACCOUNT, _PARENT, _TRACE = map(
    FIELDS.index, ("key", "updated_at", "watermark", "account", "parent", "trace")
)


def import_events(db: Database, events: Sequence[CarriedEvent]) -> list[int]:
    return [_record(db, event) for event in events]


def _record(db: Database, event: CarriedEvent) -> int:
    chain = None if event.chain is None else str(event.chain)
    values = (
        event.tenant, event.topic, event.id, chain, event.payload, event.at, event.keep_until,
        event.delivered, event.woken,
    )  # fmt: skip
    row = db.one(_SQL["record"], values) or db.one(_SQL["known_event"], (event.tenant, event.id))
    assert row is not None
    return int(row[0])


class ImportingView(SqliteView):
    """The view of an import, and of a move to another store.

    The rows of runs that come are written together: before a statement that may look at them, and at the end.
    """

    def __init__(self, db: Database, now: Instant) -> None:
        super().__init__(db, now)
        self._fence = self.newest_note()
        self._going: set[UUID] = set()  # runs that a purge has begun to remove
        # Starts and ends that the triggers count, and that are none: by slot, tenant, type, the status before
        # and after, and what is counted.
        self._not_happened: Counter[tuple[Any, ...]] = Counter()
        self._counted: Counter[tuple[Any, ...]] = Counter()  # by tenant, type and status; not deleted ones
        self._has_rest: set[str] = set()  # runs that an import has not finished
        # Rows that are not written yet, by statement.
        self._adopted: dict[str, list[Row]] = {sql: [] for sql in _BROUGHT}

    def prefetch_parts(self, parts: Sequence[CarriedRun]) -> None:
        """Look up the ids and keys of several runs at once."""
        names = {str(part.id): part.id for part in parts}
        rows = [part.row for part in parts if part.row is not None]
        related = [one for row in rows for one in (row.parent, row.account) if one is not None]
        self.prefetch(names | {str(one): one for one in related})
        keys = [stored_key(one.tenant, one.row.key) for one in parts if one.row and one.row.key is not None]
        found = self.db.all(START["taken"], (text(keys), "[]"))
        self._keys = dict.fromkeys(keys) | {key: (name, digest) for key, name, digest in found}
        self._has_rest = {name for (name,) in self.db.all(_SQL["has_rest"], (text(list(names)),))}

    def run_of(self, name: str, id: UUID | None = None) -> RunRow | None:
        if name not in self._runs:
            self._write_adopted()
        return super().run_of(name, id)

    def _write_adopted(self) -> None:
        """Write the rows of runs that have come."""
        for sql, rows in self._adopted.items():
            if rows:
                self.db.many(sql, rows)
                rows.clear()

    def _write_trail(self) -> None:
        self._write_adopted()  # their trail comes before the row `imported`
        super()._write_trail()

    def _keep(self, run: RunRow) -> RunRow | None:
        if run.deleted_at == HALF_GONE:
            self._going.add(run.id)
        return super()._keep(run)

    def is_being_purged(self, id: UUID) -> bool:
        return id in self._going

    def note(self, run: RunRow, what: str, /, **data: Any) -> Data:
        if what == "leaving" and "status" in data:
            before, status = (run.saved_status, run.status) if run.deleted_at is None else ("", "")
            slot = self.now - self.now % SLOT
            self._not_happened[slot, run.tenant, run.type, before, status, Counted.CANCELLED] += 1
        return super().note(run, what, **data)

    def last_note(self, run: RunRow, *types: str) -> tuple[str, Data] | None:
        self._write_trail()
        row = self.db.one(_SQL["last_note"], (run.text, text(types)))
        return None if row is None else (row[0], decode_untyped(row[1]))

    def hold_messages(self, run: RunRow, error: Json) -> list[str]:
        held = self.db.all(_SQL["pending"], (run.text,))
        for seq, _, *queue in held:
            self.db.run(_SQL["hold"], (seq,))
            outbox.end_message(self.db, self.now, seq, queue, (MessageStatus.DEAD, error, None))
        return [row[1] for row in held]

    def free_messages(self, run: RunRow, ids: Sequence[str]) -> None:
        for message in ids:
            self.db.run(_SQL["free"], (message, run.text))
            if self.db.changes():
                outbox.resend(self.db, self.now, message, None)

    def fence_above(self, fence: int) -> int:
        if fence >= self._fence:
            self._fence = fence + 1
            known = self.db.one(_SQL["last_number"])
            if known is None:
                self.db.run(_SQL["first_number"], (self._fence,))
            elif known[0] < self._fence:
                self.db.run(_SQL["raise_number"], (self._fence,))
        return self._fence

    def keep_part(self, part: CarriedRun) -> None:
        name = str(part.id)
        if part.is_first and name in self._has_rest:
            self._write_adopted()
            self.db.run(_SQL["forget_steps"], (name,))
            self.db.run(_SQL["forget_notes"], (name,))
        if part.steps or part.notes:
            self._has_rest.add(name)
            self._bring(part, name, self.newest_event())

    def adopt(self, part: CarriedRun, row: CarriedRow, newest: int) -> RunRow:
        name, key = str(part.id), stored_key(part.tenant, row.key)
        values = list(_fields(row))
        values[_KEY], values[_UPDATED_AT] = key, self.now
        values[_WATERMARK] = newest if row.watermark is None else row.watermark
        values[_ACCOUNT] = None if row.account is None else str(row.account)
        values[_PARENT] = None if row.parent is None else str(row.parent)
        values[_TRACE] = row.trace or None
        chain = None if part.chain is None else str(part.chain)
        self._adopted[_SQL["insert"]].append((part.tenant, *values, chain, name))
        if row.origin is not None:
            self.db.run(START["origin"], (name, str(row.origin)))
        if key is not None and self._keys is not None:
            self._keys[key] = name, row.digest
        slot = row.created_at - row.created_at % SLOT
        self._not_happened[slot, part.tenant, row.type, "", row.status, Counted.STARTED] += 1
        if row.deleted_at is None:
            self._counted[part.tenant, row.type, row.status] += 1
        self._bring(part, name, newest)
        self._runs.pop(name, None)
        return RunRow(part.id, part.tenant, row.run_at, text=name)

    def _bring(self, part: CarriedRun, name: str, newest: int) -> None:
        """Add the rows of a part."""
        rows = self._adopted
        rows[INSERT_STEP] += [_new_step(name, part.tenant, one, newest) for one in part.steps]
        rows[_SQL["note"]] += [(name, one.type, one.data, one.at) for one in part.notes]
        chain, link = (name, None) if part.chain is None else (str(part.chain), name)
        rows[_SQL["receipt"]] += [(chain, event, one.key, link) for one in part.steps for event in one.took]
        for message in part.messages:
            fields = {one: getattr(message, one) for one in CarriedMessage.__struct_fields__}
            fields["last_error"] = fields.pop("error")
            self.db.run(_SQL["put_message"], {"run": name, "tenant": part.tenant, **fields})

    def join_chain(self, run: RunRow, first: RunRow, *, is_present: bool) -> None:
        if is_present:
            self.db.run(machine_rows.SQL["go_on_as"], (run.text, first.text))
            first.present = run.id

    def save(self) -> None:
        self._write_adopted()
        super().save()
        if self._not_happened:
            self.db.many(_SQL["not_happened"], [(number, *key) for key, number in self._not_happened.items()])
            self.db.many(_SQL["nothing_happened"], list(self._not_happened))
            moves = [(*key[:-1], number) for key, number in self._not_happened.items() if key[3]]
            if moves:
                self.db.many(_SQL["counted"], moves)
        if self._counted:
            self.db.many(COUNTS["correct"], [(*key, number) for key, number in self._counted.items()])


_BROUGHT = (_SQL["insert"], INSERT_STEP, _SQL["note"], _SQL["receipt"])


def _new_step(name: str, tenant: str, step: CarriedStep, newest: int) -> Row:
    """Return the values of the statement that inserts a step."""
    values = astuple(step)[:-1]
    if step.watermark is None or step.child is not None:
        values = astuple(step_row(step, newest))
        return new_step(RunRow(UUID(int=0), tenant, 0, text=name), values)
    return (name, tenant, *values)


def import_runs(db: Database, now: Instant, parts: Sequence[CarriedRun], by: str) -> list[Imported]:
    view = ImportingView(db, now)
    view.prefetch_parts(parts)
    answers = [machine.admit(view, part, by) for part in parts]
    view.save()
    return answers


def relocate(db: Database, now: Instant, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
    view = ImportingView(db, now)
    view.prefetch({str(run): run for run in runs})
    answers = list(map(until_busy(view, move), runs))
    view.save()
    return answers


class TransferVerbs(Relocating):
    """The verbs, as a mixin of the store."""

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _read_apart(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(
            self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0
        ) -> T: ...

    async def run_ids(self, limit: int = 1000, after: UUID | None = None) -> list[UUID]:
        asked = ("" if after is None else str(after), max(0, limit))
        return self._read(lambda db: [uuid_of(row[0]) for row in db.all(_SQL["ids"], asked)])

    async def export_runs(
        self, runs: Sequence[UUID], place: Place | None = None, bytes: int = BATCH_BYTES
    ) -> list[Exported]:
        return await self._read_apart(export_runs, runs, place, bytes)

    async def export_events(
        self, limit: int = 1000, after: int = 0, *, chain: UUID | None = None, addressed: bool = True
    ) -> list[CarriedEvent]:
        read = partial(export_events, addressed=addressed)
        return await self._read_apart(read, limit, after, chain)

    async def import_events(self, events: Sequence[CarriedEvent]) -> list[int]:
        size = sum(map(event_bytes, events))
        return await self._write(lambda db, _: import_events(db, events), news=True, size=size)

    async def import_runs(
        self, parts: Sequence[CarriedRun], by: str = IMPORT, *, hold: bool = True
    ) -> list[Imported]:
        given = [on_hold(part) for part in parts] if hold else parts
        size = sum(map(part_bytes, parts))
        return await self._write(lambda db, now: import_runs(db, now, given, by), news=True, size=size)

    async def _relocate(self, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
        return await self._write(lambda db, now: relocate(db, now, runs, move), news=True)
