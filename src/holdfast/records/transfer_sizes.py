"""Sizes of carried records in bytes, as far as bounds need them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bounds import ROW_BYTES, text_bytes

from .transfer import CarriedEvent, CarriedMessage, CarriedNote, CarriedRow, CarriedRun, CarriedStep


def row_bytes(row: CarriedRow) -> int:
    values = (row.params, row.result, row.error, row.progress, row.labels, row.last_error)
    return 4 * ROW_BYTES + sum(map(text_bytes, values))


def step_bytes(step: CarriedStep) -> int:
    return ROW_BYTES + sum(map(text_bytes, (step.key, step.output, step.error, step.ask, step.wake)))


def note_bytes(note: CarriedNote) -> int:
    return ROW_BYTES // 2 + text_bytes(note.data)


def message_bytes(message: CarriedMessage) -> int:
    return ROW_BYTES + text_bytes(message.payload) + text_bytes(message.error)


def event_bytes(event: CarriedEvent) -> int:
    return ROW_BYTES + text_bytes(event.payload)


def rest_bytes(row: CarriedRow, steps: Sequence[CarriedStep], messages: Sequence[CarriedMessage]) -> int:
    return row_bytes(row) + sum(map(step_bytes, steps)) + sum(map(message_bytes, messages))


def part_bytes(part: CarriedRun) -> int:
    """Return the size of a part."""
    size = 0 if part.row is None else rest_bytes(part.row, (), part.messages)
    if part.notes:
        size += ROW_BYTES // 2 * len(part.notes) + sum(map(text_bytes, [note.data for note in part.notes]))
    return size + sum(map(step_bytes, part.steps))
