"""export and import: whole runs and events, out of the dicts and into them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES, page
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.decoding import decode_untyped
from holdfast.machine import carrying as machine
from holdfast.machine.durations import micros
from holdfast.machine.view import Data
from holdfast.records import SECOND, Instant, Json, MessageStatus
from holdfast.records.transfer import (
    IMPORT,
    CarriedEvent,
    CarriedMessage,
    CarriedNote,
    CarriedRow,
    CarriedRun,
    Exported,
    Imported,
    Place,
    Relocated,
)
from holdfast.records.transfer_sizes import event_bytes
from holdfast.stores.carrying import (
    Numbered,
    Rest,
    carried_step,
    exported,
    is_settled,
    on_hold,
    step_row,
)
from holdfast.stores.relocating import Relocating, Relocation, until_busy

from .outbox import MessageRow, free, hold
from .rows import EventRow, RunRow, State, TrailRow
from .view import MemoryView

# Fields of the row that have the same names here.
_SAME = frozenset(CarriedRow.__struct_fields__) & frozenset(RunRow.__struct_fields__)


class Rows:
    """The rows of one run."""

    def __init__(self, state: State, run: RunRow) -> None:
        self._state, self._run = state, run
        self.id, self.tenant, self.chain = run.id, run.tenant, run.chain
        self.revision = f"{run.updated_at} {run.seq} {run.fence} {run.status}"
        self._took: dict[str, list[int]] = {}
        for seq, (taker, key) in run.head.receipts.items():
            if taker == run.id:
                self._took.setdefault(key, []).append(seq)

    def section(self, number: int, after: int) -> Iterable[Numbered]:
        if number == 0:
            steps = (step for step in self._run.in_order() if is_settled(step) and step.seq > after)
            return [(step.seq, carried_step(step, self._taken(step.key))) for step in steps]
        notes = (one for one in self._state.trail if one.run == self.id and one.seq > after)
        return [(one.seq, _carried_note(one)) for one in notes]

    def _taken(self, key: str) -> tuple[int, ...]:
        return tuple(sorted(self._took.get(key, ())))

    def rest(self) -> Rest:
        run = self._run
        fields = {name: getattr(run, name) for name in _SAME}
        account = None if run.account != run.id else self._state.accounts.get(run.id)
        row = CarriedRow(
            **fields,
            shared=None if account is None else tuple(account),  # type: ignore[arg-type]  # two numbers
            is_present=run.first is not None and run.first.present == run.id,
            goes_on_as=run.present,
        )
        steps = (step for step in run.in_order() if not is_settled(step))
        posted = (one for one in self._state.post.messages.values() if one.run == self.id)
        messages = [_carried_message(one) for one in sorted(posted, key=lambda one: one.seq)]
        return row, tuple([carried_step(step, self._taken(step.key)) for step in steps]), tuple(messages)


def _carried_note(note: TrailRow) -> CarriedNote:
    data = note.data if isinstance(note.data, str) else msgspec.json.encode(note.data).decode()
    return CarriedNote(type=note.type, at=note.at, data=data)


def _carried_message(row: MessageRow) -> CarriedMessage:
    return CarriedMessage(
        id=row.id, sink=row.sink, created_at=row.created_at, next_at=row.next_at, step=row.step, key=row.key,
        payload=row.payload, status=row.status, attempts=row.attempts, fence=row.fence, error=row.error,
        tried_at=row.tried_at, sent_at=row.sent_at,
    )  # fmt: skip


class ImportingView(MemoryView):
    """The view of an import, and of a move to another store."""

    def last_note(self, run: RunRow, *types: str) -> tuple[str, Data] | None:
        notes = (one for one in reversed(self._state.trail) if one.run == run.id and one.type in types)
        found = next(notes, None)
        if found is None:
            return None
        return found.type, found.data if isinstance(found.data, dict) else decode_untyped(found.data)

    def hold_messages(self, run: RunRow, error: Json) -> list[str]:
        return hold(self._state.post, run.id, error, self.now)

    def free_messages(self, run: RunRow, ids: Sequence[str]) -> None:
        free(self._state.post, run.id, ids, self.now)

    def is_being_purged(self, id: UUID) -> bool:
        return False

    def fence_above(self, fence: int) -> int:
        self._state.trail_seq = max(self._state.trail_seq, fence + 1)
        return self._state.trail_seq

    def keep_part(self, part: CarriedRun) -> None:
        parts = self._state.parts
        if part.is_first:
            parts.pop(part.id, None)
        parts.setdefault(part.id, []).append(part)

    def adopt(self, part: CarriedRun, row: CarriedRow, newest: int) -> RunRow:
        state = self._state
        fields = {name: getattr(row, name) for name in _SAME}
        run = RunRow(id=part.id, tenant=part.tenant, chain=part.chain, **fields)
        run.watermark = newest if row.watermark is None else row.watermark
        run.seq = run.step_mark
        state.runs[run.id] = self._touched[run.id] = run
        if run.key is not None:
            state.keys[run.tenant, run.key] = run.id
        run.first = None if part.chain is None else state.runs[part.chain]
        for one in (*state.parts.pop(run.id, ()), part):
            for step in one.steps:
                self.put(run, step_row(step, newest))
                run.head.receipts |= dict.fromkeys(step.took, (run.id, step.key))
            for note in one.notes:
                self._bring(run, note)
            for message in one.messages:
                _enter(state, run, message)
        return run

    def _bring(self, run: RunRow, note: CarriedNote) -> None:
        data = note.data if note.type == "log" else decode_untyped(note.data)
        entry = self._state.note(run, note.type, data if isinstance(data, dict) else note.data, note.at)
        if note.type == "log":
            run.logs.append(entry)

    def join_chain(self, run: RunRow, first: RunRow, *, is_present: bool) -> None:
        if is_present:
            first.present = run.id


def _enter(state: State, run: RunRow, message: CarriedMessage) -> None:
    post = state.post
    if message.id in post.messages:
        return
    fields = {name: getattr(message, name) for name in CarriedMessage.__struct_fields__}
    row = MessageRow(seq=post.next_seq(), tenant=run.tenant, run=run.id, **fields)
    post.messages[row.id] = row
    if row.status is MessageStatus.PENDING:
        post.enter(row)


def _carried_event(event: EventRow) -> CarriedEvent:
    return CarriedEvent(
        seq=event.seq, id=event.id, tenant=event.tenant, topic=event.topic, at=event.at,
        keep_until=event.at + micros(max(event.keep_seconds, EVENT_KEEP_SECONDS)), payload=event.payload,
        chain=event.run, delivered=event.delivered, woken=event.woken,
    )  # fmt: skip


def _record(state: State, event: CarriedEvent) -> int:
    known = state.event_ids.get((event.tenant, event.id))
    if known is not None:
        return known.seq
    state.event_seq += 1
    state.add_event(EventRow(
        seq=state.event_seq, id=event.id, tenant=event.tenant, topic=event.topic, payload=event.payload,
        run=event.chain, at=event.at, keep_seconds=(event.keep_until - event.at) / SECOND,
        delivered=event.delivered, woken=event.woken,
    ))  # fmt: skip
    return state.event_seq


class TransferVerbs(Relocating):
    """The verbs, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _lock: threading.RLock
    _state: State

    if TYPE_CHECKING:

        def _hint(self) -> None: ...

    async def run_ids(self, limit: int = 1000, after: UUID | None = None) -> list[UUID]:
        with self._lock:
            found = (run for run in self._state.runs if after is None or run > after)
            return sorted(found)[: max(0, limit)]

    async def export_runs(
        self, runs: Sequence[UUID], place: Place | None = None, bytes: int = BATCH_BYTES
    ) -> list[Exported]:
        with self._lock:
            return exported(self._rows, runs, place, bytes)

    def _rows(self, run: UUID) -> Rows | None:
        row = self._state.runs.get(run)
        return None if row is None else Rows(self._state, row)

    async def export_events(
        self, limit: int = 1000, after: int = 0, *, chain: UUID | None = None, addressed: bool = True
    ) -> list[CarriedEvent]:
        with self._lock:
            found = (
                _carried_event(event)
                for event in self._state.events
                if event.seq > after
                and (chain is None or event.run == chain)
                and (addressed or event.run is None)
            )
            return page(found, event_bytes, limit)

    async def import_events(self, events: Sequence[CarriedEvent]) -> list[int]:
        with self._lock:
            numbers = [_record(self._state, event) for event in events]
            self._hint()
            return numbers

    async def import_runs(
        self, parts: Sequence[CarriedRun], by: str = IMPORT, *, hold: bool = True
    ) -> list[Imported]:
        with self._lock:
            view = ImportingView(self._state, self._clock())
            given = [on_hold(part) for part in parts] if hold else parts
            answers = [machine.admit(view, part, by) for part in given]
            view.save()
            self._hint()
            return answers

    async def _relocate(self, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
        with self._lock:
            view = ImportingView(self._state, self._clock())
            answers = list(map(until_busy(view, move), runs))
            view.save()
            self._hint()
            return answers
