"""The view of an import: whole runs and events that come from another store."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.bounds import text_bytes
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.decoding import decode_untyped
from holdfast.machine import carrying as machine
from holdfast.machine.durations import micros
from holdfast.machine.settling import COME, has_waited
from holdfast.machine.view import Data
from holdfast.records import SECOND, Json, MessageStatus
from holdfast.records.transfer import (
    CarriedEvent,
    CarriedMessage,
    CarriedNote,
    CarriedRow,
    CarriedRun,
    Imported,
    Relocated,
)
from holdfast.stores.carrying import step_row
from holdfast.stores.relocating import Relocation, until_busy

from . import rows
from .held import HeldRun
from .inbox import read_event, topic_of
from .messages import MessageRow, message_key
from .rows import RunRow, log_number, stored_word, trail_row
from .snapshot import Snapshot
from .view import RedisView

# Fields of a row that have the same names here.
SAME = frozenset(CarriedRow.__struct_fields__) & frozenset(RunRow.__struct_fields__)
WORDS = 1000  # members that one command removes
_MESSAGE = frozenset(MessageRow.__struct_fields__)


class ImportingView(RedisView):
    """The rows that an import, or a move to another store, reads and changes."""

    def prefetch_parts(self, parts: Sequence[CarriedRun]) -> None:
        """Read together what all parts need."""
        names, snapshot = self.names, self.snapshot
        keyed = [
            (one.tenant, one.row.key) for one in parts if one.row is not None and one.row.key is not None
        ]
        related = [one.chain for one in parts if one.chain is not None]
        belongs = [(one.row.parent, one.row.account) for one in parts if one.row is not None]
        related += [one for pair in belongs for one in pair if one is not None]
        related += [step.child for one in parts for step in one.steps if step.child is not None]
        messages = [message.id for one in parts for message in one.messages]
        snapshot.all([
            *self.commands([*(one.id for one in parts), *related]),
            *(("GET", names.of("key", tenant, key)) for tenant, key in keyed),
            *(("ZCARD", names.trail_of(one.id)) for one in parts),
            *(("HLEN", names.steps(one.id)) for one in parts),
            *(("HGET", message_key(names, id), "row") for id in messages),
        ])  # fmt: skip

    def is_being_purged(self, id: UUID) -> bool:
        return self.run(id) is None and id in self._half_gone

    def last_note(self, run: RunRow, *types: str) -> tuple[str, Data] | None:
        found = self.snapshot.read("ZRANGE", self.names.trail_of(run.id), 0, -1)
        notes = (trail_row(member) for member in reversed(found))
        return next(((what, decode_untyped(data)) for _, what, _, data in notes if what in types), None)

    def hold_messages(self, run: RunRow, error: Json) -> list[str]:
        owed = self.snapshot.read("ZRANGE", self.names("outbox:owed", str(run.id)), 0, -1)
        listed = self.snapshot.read("ZRANGE", self.names("outbox:run", str(run.id)), 0, -1) if owed else ()
        self._post.prefetch(owed)
        held = [row for id in listed if id in set(owed) and (row := self._post.row(id)) is not None]
        for row in held:
            row.status, row.held_by, row.error, row.fence = MessageStatus.DEAD, None, error, row.fence + 1
            self._post.leave(row)
            self._post.save(row)
        return [row.id for row in held]

    def free_messages(self, run: RunRow, ids: Sequence[str]) -> None:
        for id in ids:
            row = self._post.row(id)
            if row is not None and row.run == run.id and row.status is MessageStatus.DEAD:
                row.status, row.next_at, row.error = MessageStatus.PENDING, self.now, None
                row.attempts, row.tried_at = 0, None
                self._post.enter(row)
                self._post.save(row)

    def fence_above(self, fence: int) -> int:
        # The caller has raised the numbers above all fences that come.
        return self.newest_note()

    def keep_part(self, part: CarriedRun) -> None:
        if part.is_first:
            self._forget_rest(part.id)
        for step in part.steps:
            row = step_row(step, self.newest_event())
            self.snapshot.do("HSET", self.names.steps(part.id), row.key, rows.step_text(row))
        self._bring(part)

    def _forget_rest(self, id: UUID) -> None:
        """Remove what an import has left that was not finished."""
        names, snapshot = self.names, self.snapshot
        if snapshot.read("HLEN", names.steps(id)):
            snapshot.do("DEL", names.steps(id))
        if snapshot.read("ZCARD", names.trail_of(id)):
            found = [trail_row(one) for one in snapshot.read("ZRANGE", names.trail_of(id), 0, -1)]
            for at in range(0, len(found), WORDS):
                members = [f"{seq} {id} {stored_word(what)}" for seq, what, *_ in found[at : at + WORDS]]
                snapshot.do("ZREM", names.trail, *members)
            snapshot.do("DEL", names.trail_of(id))

    def adopt(self, part: CarriedRun, row: CarriedRow, newest: int) -> RunRow:
        fields = {name: getattr(row, name) for name in SAME}
        run = RunRow(id=part.id, tenant=part.tenant, chain=part.chain, **fields)
        run.watermark = newest if row.watermark is None else row.watermark
        run.seq, run.bytes = run.step_mark, text_bytes(run.params) + text_bytes(run.labels)
        held = self._runs[run.id] = HeldRun(self.snapshot, run, None)
        if not part.is_first:
            self._learn_kept(held)
        for step in part.steps:
            held.put(step_row(step, newest))
        if run.key is not None:
            self._keys[run.tenant, run.key] = run.id, run.digest
            self.snapshot.do("SET", self.names.of("key", run.tenant, run.key), f"{run.id} {run.digest}")
        self._bring(part)
        run.logs = max((log_number(one.type, one.data) for one in part.notes), default=0)
        if not part.is_first:
            kept = self.snapshot.read("ZRANGE", self.names.trail_of(run.id), 0, -1)
            numbers = (log_number(what, data) for _, what, _, data in map(trail_row, kept))
            run.logs = max(run.logs, *numbers, 0)
        for message in part.messages:
            self._enter(run, message)
        return run

    def _learn_kept(self, held: HeldRun) -> None:
        """Let the row of a run say what it says about the steps of earlier parts."""
        row = held.row
        kept = self.snapshot.read("HGETALL", self.names.steps(row.id))
        for step in map(rows.step_row, kept.values()):
            held.keep(step)
            row.seq, row.bytes = max(row.seq, step.seq), row.bytes + rows.step_bytes(step)
            if step.number:
                row.item_fence, row.item_no = max((row.item_fence, row.item_no), (step.fence, step.number))
            if step.status in COME and has_waited(step):
                row.waits_seq = max(row.waits_seq, step.seq)
        held.follow_cursor()

    def _bring(self, part: CarriedRun) -> None:
        """Add the trail of a part, and the receipts of its steps."""
        names, snapshot = self.names, self.snapshot
        for note in part.notes:
            self._bring_note(part.id, note)
        chain = str(part.chain or part.id)
        for step in part.steps:
            if step.took:
                taken = [word for seq in step.took for word in (seq, str(part.id))]
                snapshot.do("HSET", names("receipts", chain), *taken)
                snapshot.do("HSET", names("took", str(part.id)), step.key, " ".join(map(str, step.took)))

    def _bring_note(self, id: UUID, note: CarriedNote) -> None:
        word = stored_word(note.type)
        row = f"{word} {note.at} {note.data}"
        self.snapshot.log("trail", self.names.trail_of(id), row, self.names.trail, f"{id} {word}")

    def _enter(self, run: RunRow, message: CarriedMessage) -> None:
        names, snapshot = self.names, self.snapshot
        if self._post.row(message.id) is not None:
            return
        fields = {name: getattr(message, name) for name in message.__struct_fields__ if name in _MESSAGE}
        row = MessageRow(tenant=run.tenant, run=run.id, **fields)
        key = message_key(names, row.id)
        snapshot.do("HSET", key, "payload", message.payload)
        snapshot.do("ZADD", names("sinks"), 0, row.sink)
        self._post.adopt(row)
        if row.status is MessageStatus.PENDING:
            self._post.enter(row)
        else:
            snapshot.number("message", key, "seq", row.id, names("outbox"), names("outbox:run", str(run.id)))
        self._post.save(row)

    def join_chain(self, run: RunRow, first: RunRow, *, is_present: bool) -> None:
        if is_present:
            first.present = run.id


def import_runs(snapshot: Snapshot, parts: Sequence[CarriedRun], by: str) -> list[Imported]:
    view = ImportingView(snapshot)
    view.prefetch_parts(parts)
    answers = snapshot.each(parts, lambda part: machine.admit(view, part, by))
    view.save()
    return answers


def relocate(snapshot: Snapshot, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
    view = ImportingView(snapshot)
    view.prefetch(runs)
    answers = snapshot.each(runs, until_busy(view, move))
    view.save()
    return answers


def import_events(snapshot: Snapshot, events: Sequence[CarriedEvent]) -> list[int]:
    names = snapshot.names
    keys = [names.event(event.tenant, event.id) for event in events]
    snapshot.all([("HGETALL", key) for key in keys])
    newest = int(snapshot.guarded("HGET", names.numbers, "event") or 0)
    numbers: dict[str, int] = {}
    for key, event in zip(keys, events, strict=True):
        if key in numbers:
            continue
        known = read_event(snapshot, key)
        snapshot.guard(("HGET", key, "seq"), None if known is None else known.seq)
        if known is not None:
            numbers[key] = known.seq
            continue
        newest += 1
        numbers[key] = newest
        _record(snapshot, key, event)
        snapshot.is_news = True
    return [numbers[key] for key in keys]


def _record(snapshot: Snapshot, key: str, event: CarriedEvent) -> None:
    names = snapshot.names
    keep = (event.keep_until - event.at) / SECOND
    fields = ["id", event.id, "tenant", event.tenant, "topic", event.topic, "payload", event.payload,
              "at", str(event.at), "keep", repr(keep), "woken", str(event.woken)]  # fmt: skip
    snapshot.do("HSET", key, *fields, *(() if event.chain is None else ("run", str(event.chain))))
    sets = [topic_of(names, event.tenant, event.topic, event.chain), names("events:numbers")]
    sets += [] if event.delivered else [names("undelivered")]
    snapshot.number("event", key, "seq", key, *sets)
    if event.chain is None:
        snapshot.do("ZADD", names("events"), event.keep_until, key)
    else:
        snapshot.do("ZADD", names("events:addressed"), event.at + micros(EVENT_KEEP_SECONDS), key)
        snapshot.do("ZADD", names("events:of", str(event.chain)), 0, key)
