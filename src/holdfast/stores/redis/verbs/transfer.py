"""export and import: whole runs and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from holdfast.bounds import BATCH_BYTES, LARGE_BATCH_BYTES, page, slices
from holdfast.contract import EVENT_KEEP_SECONDS
from holdfast.errors import Unavailable
from holdfast.machine.durations import micros
from holdfast.machine.rows import StepRow
from holdfast.records.transfer import (
    IMPORT,
    CarriedEvent,
    CarriedMessage,
    CarriedNote,
    CarriedRow,
    CarriedRun,
    CarriedStep,
    Exported,
    ImportAnswer,
    Imported,
    Place,
    Relocated,
    RelocationAnswer,
)
from holdfast.records.transfer_sizes import event_bytes, part_bytes
from holdfast.stores.carrying import (
    Numbered,
    Rest,
    carried_step,
    exported,
    is_settled,
    on_hold,
)
from holdfast.stores.redis import rows
from holdfast.stores.redis.batches import IN_SCRIPT, ROWS
from holdfast.stores.redis.importing import SAME, import_events, import_runs, relocate
from holdfast.stores.redis.messages import MessageRow, message_key, message_row
from holdfast.stores.redis.rows import RunRow, event_row, trail_row
from holdfast.stores.redis.snapshot import Command
from holdfast.stores.relocating import Relocating, Relocation, behind

from .steps import StepReads

RUNS = 50  # runs that are read at once
NOTES = 2000  # rows of one run's trail that are read at once
EVENTS = 500  # events that are read at once
TRIES = 100  # how often a run that changes meanwhile is read again
_MARKS = ("rev", "writes", "updated_at", "logs")
_MESSAGE = frozenset(CarriedMessage.__struct_fields__) & frozenset(MessageRow.__struct_fields__)

T = TypeVar("T")


class Rows:
    """The rows of one run that were read: of each section the first ones after a place."""

    def __init__(self, run: RunRow) -> None:
        self.run, self.id, self.tenant, self.chain = run, run.id, run.tenant, run.chain
        self.revision = f"{run.rev} {run.seq}"
        self.settled: list[StepRow] = []
        self.unsettled: list[StepRow] = []
        self.notes: list[str] = []
        self.messages: list[CarriedMessage] = []
        self.took: dict[str, str] = {}
        self.shared: tuple[int, int] | None = None
        self.is_present = self.has_more_steps = self.has_more_notes = False

    def section(self, number: int, after: int) -> Iterable[Numbered]:
        if number == 0:
            return self._steps(after)
        return self._notes(after)

    def _steps(self, after: int) -> Iterator[Numbered]:
        for step in self.settled:
            if step.seq > after:
                yield step.seq, self._carried(step)
        if self.has_more_steps:
            yield 0, None

    def _notes(self, after: int) -> Iterator[Numbered]:
        for seq, what, at, data in map(trail_row, self.notes):
            if seq > after:
                yield seq, CarriedNote(type=what, at=at, data=data)
        if self.has_more_notes:
            yield 0, None

    def _carried(self, step: StepRow) -> CarriedStep:
        return carried_step(step, tuple(sorted(map(int, self.took.get(step.key, "").split()))))

    def rest(self) -> Rest:
        fields = {name: getattr(self.run, name) for name in SAME}
        row = CarriedRow(
            **fields, shared=self.shared, is_present=self.is_present, goes_on_as=self.run.present
        )
        return row, tuple(map(self._carried, self.unsettled)), tuple(self.messages)


class TransferVerbs(Relocating, StepReads):
    """The verbs of export and import, as a mixin of the store."""

    async def run_ids(self, limit: int = 1000, after: UUID | None = None) -> list[UUID]:
        least = "-" if after is None else f"({after}"
        asked = ("ZRANGEBYLEX", self._names("runs"), least, "+", "LIMIT", 0, max(0, limit))
        (found,) = await self._connections.ask([asked])
        return [UUID(id) for id in found]

    async def export_runs(
        self, runs: Sequence[UUID], place: Place | None = None, bytes: int = BATCH_BYTES
    ) -> list[Exported]:
        answer: list[Exported] = []
        left = bytes
        for at in range(0, len(runs[:1] if place is not None else runs), RUNS):
            some = runs[at : at + RUNS] if place is None else runs[:1]
            found = await self._export_whole(some, place, left)
            parts = exported(found.get, some, place, left)
            if answer and (not parts or parts[0].after is not None):
                if parts:
                    break
                continue
            answer += parts
            left -= sum(part_bytes(one.part) for one in parts)
            if left <= 0 or len(parts) < len(found) or (parts and parts[-1].after is not None):
                break
        return answer

    async def _export_whole(self, runs: Sequence[UUID], place: Place | None, budget: int) -> dict[UUID, Rows]:
        """Read runs, each as it is at one instant."""
        found: dict[UUID, Rows] = {}
        left = list(runs)
        for _ in range(TRIES):
            some, marks = await self._export_rows(left, place, budget)
            again = await self._export_marks([one.id for one in some])
            same = [one for one, mark in zip(some, again, strict=True) if marks[one.id] == mark]
            found |= {one.id: one for one in same}
            left = [one.id for one in some if one.id not in found]
            if not left:
                return found
        raise Unavailable(f"{self.address.shown}: run {left[0]} changes all the time: export it later")

    async def _export_marks(self, runs: Sequence[UUID]) -> list[list[str | None]]:
        if not runs:
            return []
        return await self._connections.ask([("HMGET", self._names.run(run), *_MARKS) for run in runs])

    async def _export_rows(
        self, runs: Sequence[UUID], place: Place | None, budget: int
    ) -> tuple[list[Rows], dict[UUID, list[str | None]]]:
        names = self._names
        asked: list[Command] = [("HMGET", names.run(run), *rows.FIELDS) for run in runs]
        answers = await self._connections.ask(asked) if asked else []
        read = (rows.decoded(run, values, small=False) for run, values in zip(runs, answers, strict=True))
        found = [Rows(run) for run in read if run is not None]
        marks = {
            one.id: [values[rows.FIELDS.index(name)] for name in _MARKS]
            for one, values in zip(found, (v for v in answers if v[rows.FIELDS.index("status")]), strict=True)
        }
        await self._export_related(found, place)
        for one in found:
            if one.run.bytes > BATCH_BYTES or place is not None:
                await self._export_steps(one, place, budget)
        return found, marks

    async def _export_related(self, found: Sequence[Rows], place: Place | None) -> None:
        """Read the steps of small runs, and what else belongs to runs."""
        if not found:
            return
        names, after = self._names, place[1] if place is not None and place[0] == 1 else -1
        asked: list[Command] = []
        for one in found:
            id, small = str(one.id), one.run.bytes <= BATCH_BYTES and place is None
            asked += (
                ("HGETALL", names.steps(id)) if small else ("HLEN", names.steps(id)),
                ("HGETALL", names("took", id)),
                ("ZRANGEBYSCORE", names.trail_of(id), f"({after}", "+inf", "LIMIT", 0, NOTES),
                ("HGET", names.run(one.chain or id), "present"),
                ("HMGET", names("account", id), "budget", "spent"),
                ("ZRANGE", names("outbox:run", id), 0, -1),
            )
        answers = iter(await self._connections.ask(asked))
        posted: list[tuple[Rows, str]] = []
        for one in found:
            steps, one.took, one.notes, present, (budget, spent), messages = (next(answers) for _ in range(6))
            if isinstance(steps, dict):
                _sort_in(one, map(rows.step_row, steps.values()))
            one.has_more_notes = len(one.notes) == NOTES
            one.is_present = one.chain is not None and present == str(one.id)
            one.shared = None if budget is None else (int(budget), int(spent))
            posted += ((one, id) for id in messages)
        asked = [("HMGET", message_key(names, id), "row", "payload") for _, id in posted]
        texts = await self._connections.ask(asked) if asked else []
        for (one, _), (text, payload) in zip(posted, texts, strict=True):
            if text is not None:
                one.messages.append(_message(message_row(text), payload))

    async def _export_steps(self, one: Rows, place: Place | None, budget: int) -> None:
        """Read steps of a large run: some that are settled, and all others."""
        if one.run.is_plan:
            _sort_in(one, [step async for part in self._all_steps(one.run) for step in part])
            return
        keys = rows.open_keys(one.run)
        if keys:
            (texts,) = await self._connections.ask([("HMGET", self._names.steps(one.id), *keys)])
            _sort_in(one, [rows.step_row(text) for text in texts if text is not None])
        if place is None or place[0] == 0:
            after = -1 if place is None else place[1]
            some, one.has_more_steps = await self._steps_after(one.run, after, max(budget, 1))
            one.settled = [step for step in some if is_settled(step)]

    async def export_events(
        self, limit: int = 1000, after: int = 0, *, chain: UUID | None = None, addressed: bool = True
    ) -> list[CarriedEvent]:
        names, found = self._names, list[CarriedEvent]()
        async for keys in self._event_keys(after, chain):
            texts = await self._connections.ask([
                *(("HGETALL", key) for key in keys),
                *(("ZSCORE", names("undelivered"), key) for key in keys),
            ])  # fmt: skip
            for values, score in zip(texts[: len(keys)], texts[len(keys) :], strict=True):
                event = _event(values, delivered=score is None)
                if event is not None and (addressed or event.chain is None):
                    found.append(event)
            if len(found) >= limit or sum(map(event_bytes, found)) > BATCH_BYTES:
                break
        return page(found, event_bytes, limit)

    async def _event_keys(self, after: int, chain: UUID | None) -> AsyncIterator[list[str]]:
        """Yield the keys of events with a number above `after`, by number, in pages."""
        ask, names = self._connections.ask, self._names
        if chain is not None:
            (of_chain,) = await ask([("ZRANGE", names("events:of", str(chain)), 0, -1)])
            numbers = await ask([("HGET", key, "seq") for key in of_chain]) if of_chain else []
            found = sorted((int(seq), key) for seq, key in zip(numbers, of_chain, strict=True) if seq)
            keys = [key for seq, key in found if seq > after]
            for at in range(0, len(keys), EVENTS):
                yield keys[at : at + EVENTS]
            return
        while True:
            found_after = ("ZRANGEBYSCORE", names("events:numbers"), f"({after}", "+inf", "WITHSCORES")
            (numbered,) = await ask([(*found_after, "LIMIT", 0, EVENTS)])
            if not numbered:
                return
            yield [key for key, _ in numbered]
            after = int(numbered[-1][1])

    async def import_events(self, events: Sequence[CarriedEvent]) -> list[int]:
        numbers: list[int] = []
        for part in slices(events, event_bytes, LARGE_BATCH_BYTES, IN_SCRIPT):
            numbers += await self._change(partial(import_events, events=part))
        return numbers

    async def import_runs(
        self, parts: Sequence[CarriedRun], by: str = IMPORT, *, hold: bool = True
    ) -> list[Imported]:
        given = [on_hold(part) for part in parts] if hold else parts
        highest = max((part.row.fence for part in given if part.row is not None), default=-1)
        if highest >= 0:
            await self._connections.run("raise", [self._names.numbers], [highest + 1])
        answers: list[Imported] = []
        for some in slices(given, _weight, LARGE_BATCH_BYTES, IN_SCRIPT):
            if len(some) == 1:
                answers.append(await self._import_one(some[0], by))
            else:
                answers += await self._change(partial(import_runs, parts=some, by=by))
        return answers

    async def _import_one(self, part: CarriedRun, by: str) -> Imported:
        """Write one part, in several scripts if it has very many rows. Nobody sees it before the last one."""
        *pieces, last = divided(part)
        for piece in pieces:
            (answer,) = await self._change(partial(import_runs, parts=[piece], by=by))
            if answer.answer is not ImportAnswer.PART:
                return answer
        (answer,) = await self._change(partial(import_runs, parts=[last], by=by))
        return answer

    async def _relocate(self, runs: Sequence[UUID], move: Relocation) -> list[Relocated]:
        answers: list[Relocated] = []
        for at in range(0, len(runs), IN_SCRIPT):
            answers += await self._change(partial(relocate, runs=runs[at : at + IN_SCRIPT], move=move))
            if any(one.answer is RelocationAnswer.BUSY for one in answers):
                return answers + [behind(run) for run in runs[at + IN_SCRIPT :]]
        return answers


def _rows(part: CarriedRun) -> int:
    return len(part.steps) + len(part.notes) + len(part.messages)


def _weight(part: CarriedRun) -> int:
    """Return the bytes of a part. Each row counts as many, too, because a script takes its time for each."""
    return part_bytes(part) + _rows(part) * LARGE_BATCH_BYTES // ROWS


def divided(part: CarriedRun) -> Iterator[CarriedRun]:
    """Yield a part in pieces of few rows. The last one has all that only the last part of a run may have."""
    steps, notes, is_first = part.steps, part.notes, part.is_first
    if _rows(part) > ROWS:
        settled = [step for step in steps if part.row is None or is_settled(step)]
        steps = tuple(step for step in steps if part.row is not None and not is_settled(step))
        empty = CarriedRun(id=part.id, tenant=part.tenant, chain=part.chain)
        pieces = [replace(empty, steps=some) for some in _chunks(settled)]
        *first_notes, notes = [*_chunks(notes)] or [()]
        pieces += [replace(empty, notes=some) for some in first_notes]
        for piece in pieces:
            yield replace(piece, is_first=is_first)
            is_first = False
    yield replace(part, steps=steps, notes=notes, is_first=is_first)


def _chunks(rows: Sequence[T]) -> Iterator[tuple[T, ...]]:
    return (tuple(rows[at : at + ROWS]) for at in range(0, len(rows), ROWS))


def _sort_in(one: Rows, steps: Iterable[StepRow]) -> None:
    for step in sorted(steps, key=lambda step: step.seq):
        (one.settled if is_settled(step) else one.unsettled).append(step)


def _message(row: MessageRow, payload: str | None) -> CarriedMessage:
    fields = {name: getattr(row, name) for name in _MESSAGE}
    return CarriedMessage(**fields, payload="null" if payload is None else payload)


def _event(values: dict[str, str], *, delivered: bool) -> CarriedEvent | None:
    event = event_row(values)
    if event is None:
        return None
    return CarriedEvent(
        seq=event.seq, id=event.id, tenant=event.tenant, topic=event.topic, at=event.at,
        keep_until=event.at + micros(max(event.keep, EVENT_KEEP_SECONDS)), payload=event.payload,
        chain=event.run, delivered=delivered, woken=event.woken,
    )  # fmt: skip
