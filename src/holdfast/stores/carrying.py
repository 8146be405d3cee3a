"""Exported runs in parts, and the fields of a row that change on its way: shared by all stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.lifecycle import OPEN, SETTLED, Status
from holdfast.machine.rows import StepRow
from holdfast.records import MessageStatus
from holdfast.records.transfer import (
    IMPORT,
    CarriedMessage,
    CarriedRow,
    CarriedRun,
    CarriedStep,
    Exported,
    Place,
)
from holdfast.records.transfer_sizes import note_bytes, rest_bytes, step_bytes

SIZES: tuple[Callable[[Any], int], ...] = (step_bytes, note_bytes)
SECTIONS = 2  # settled steps, and notes
Numbered = tuple[int, Any]  # a row of a section, with its number
Rest = tuple[CarriedRow, tuple[CarriedStep, ...], tuple[CarriedMessage, ...]]
T = TypeVar("T")

_HELD = msgspec.json.encode(
    {"kind": IMPORT, "message": "it came with an imported run, and is not sent unless somebody resends it"}
).decode()


class RunRows(Protocol):
    """The rows of one run, for `exported`."""

    id: UUID
    tenant: str
    chain: UUID | None
    revision: str

    def section(self, number: int, after: int) -> Iterable[Numbered]:
        """Return the rows of a section with a number above `after`, by number. None instead of a row: not
        all of them were read, so the part ends."""

    def rest(self) -> Rest:
        """Return the row of the run, its steps that are not settled, by number, and its messages."""


def exported(
    found: Callable[[UUID], RunRows | None], runs: Sequence[UUID], place: Place | None, budget: int
) -> list[Exported]:
    """Return runs in parts: see `export_runs`."""
    answer: list[Exported] = []
    for run in runs[:1] if place is not None else runs:
        rows = found(run)
        if rows is None:
            continue
        part, left = _part(rows, place, budget)
        if answer and (left < 0 or part.after is not None):
            break
        answer.append(part)
        budget = left
        if part.after is not None or left <= 0:
            break
    return answer


def _part(rows: RunRows, place: Place | None, budget: int) -> tuple[Exported, int]:
    """Return the next part of a run, and the bytes that are left."""
    row, steps, messages = rows.rest()
    left = budget - rest_bytes(row, steps, messages)
    found: tuple[list[Any], ...] = ([], [])
    part = CarriedRun(id=rows.id, tenant=rows.tenant, chain=rows.chain, is_first=place is None)
    first, after = (0, -1) if place is None else place
    for number in range(first, SECTIONS):
        for seq, one in rows.section(number, after):
            left -= 0 if one is None else SIZES[number](one)
            if one is None or (left < 0 and any(found)):
                part.steps, part.notes = map(tuple, found)
                return Exported(part=part, after=(number, after), revision=rows.revision), left
            found[number].append(one)
            after = seq
        after = -1
    part.steps, part.notes = (*found[0], *steps), tuple(found[1])
    part.row, part.messages = at_rest(row), messages
    return Exported(part=part, revision=rows.revision), left


def at_rest(row: CarriedRow) -> CarriedRow:
    """Return the row of a run as if its holder had given it back."""
    if row.status is not Status.LEASED:
        return row
    paused = row.pause_asked_by is not None
    return replace(
        row,
        status=Status.PAUSED if paused else Status.PENDING,
        resume_to=Status.PENDING if paused else None,
        attempt=max(0, row.attempt - 1),
    )


def on_hold(part: CarriedRun) -> CarriedRun:
    """Return a part as it is imported: an open run is paused, and its messages are dead."""
    row = part.row
    if row is not None and row.status in OPEN and row.status is not Status.PAUSED:
        row = replace(row, status=Status.PAUSED, resume_to=row.status, pause_asked_by=IMPORT)
    messages = tuple([_dead(one) for one in part.messages])
    return part if row is part.row and not messages else replace(part, row=row, messages=messages)


def _dead(message: CarriedMessage) -> CarriedMessage:
    if message.status is not MessageStatus.PENDING:
        return message
    return replace(message, status=MessageStatus.DEAD, error=message.error or _HELD)


def carried_step(step: StepRow, took: tuple[int, ...] = ()) -> CarriedStep:
    """Return a step as it is carried."""
    return CarriedStep(
        seq=step.seq, key=step.key, kind=step.kind, status=step.status, attempts=step.attempts,
        output=step.output, error=step.error, cost=step.cost, topic=step.topic, due_at=step.due_at,
        fence=step.fence, number=step.number, started_at=step.started_at, finished_at=step.finished_at,
        max_attempts=step.max_attempts, timeout_seconds=step.timeout_seconds, ask=step.ask,
        digest=step.digest, child=step.child, wake=step.wake, waits=step.waits, watermark=step.watermark,
        on_timeout=step.on_timeout, took=took,
    )  # fmt: skip


def step_row(step: CarriedStep, newest: int) -> StepRow:
    """Return a step that has come as the machine knows it. `newest`: the newest event of the store."""
    row = StepRow(*msgspec.structs.astuple(step)[:-1])
    if step.watermark is None:
        row.watermark = newest
    return row


def is_settled(step: StepRow | CarriedStep) -> bool:
    """Return True when a step belongs to the first section."""
    return step.status in SETTLED
