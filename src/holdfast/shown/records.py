"""Steps, trail entries and errors from their shapes: the inverse of some functions of data.py.

Values of users keep their JSON text as it came. A value that the reader may not see is `unreadable`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Raw

from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import COST_UNIT, Error, Instant, Json, Step, TrailEntry, instant
from holdfast.records.fingerprints import SEALED, fingerprint
from holdfast.records.unreadable import REDACTED

from .shapes import ErrorData, StepData, TrailEntryData


def step_of(data: StepData) -> Step:
    """A recorded step."""
    done = data.status is StepStatus.SUCCEEDED
    output = optional_text(data.output)
    if done and output is None and not data.left_out and data.kind is StepKind.TASK:
        output = "null"
    return Step(
        seq=data.seq,
        key=data.step,
        kind=data.kind,
        status=data.status,
        attempts=data.attempts,
        max_attempts=data.max_attempts,
        output=REDACTED if data.redacted and done else output,
        error_json=error_text(data.error),
        cost=units(data.cost),
        topic=data.topic,
        due_at=instant_of(data.due_at),
        started_at=instant_of(data.started_at),
        finished_at=instant_of(data.finished_at),
        child=data.child,
        ask=optional_text(data.ask),
        digest=data.digest,
        left_out=data.left_out,
    )


def trail_entry_of(data: TrailEntryData) -> TrailEntry:
    """One thing that happened to a run."""
    return TrailEntry(
        seq=data.seq,
        run=data.run,
        type=data.type,
        at=data.at,
        data_json=bytes(data.data).decode(),
        told=data.told,
    )


def error_of(data: ErrorData | None) -> Error | None:
    """The error of a run, a step or a message."""
    if data is None:
        return None
    fields = msgspec.structs.asdict(data)
    return Error(**fields | {"since": instant_of(data.since), "args": optional_text(data.args)})


def error_text(data: ErrorData | None, known: str | None = None) -> Json | None:
    """The error as stores keep it. known: its fingerprint; an encrypted error brings its own."""
    error = error_of(data)
    if error is None:
        return None
    text = msgspec.json.encode(error).decode()
    if known is None or known == fingerprint(text):
        return text
    return msgspec.json.encode({**msgspec.to_builtins(error), SEALED: known}).decode()


def optional_text(raw: Raw) -> Json | None:
    """The text of a value; None for null."""
    text = bytes(raw).decode()
    return None if text == "null" else text


def units(cost: float) -> int:
    """A cost as stores keep it."""
    return round(cost * COST_UNIT)


def instant_of(at: datetime | None) -> Instant | None:
    """An instant as stores keep it."""
    return None if at is None else instant(at)
