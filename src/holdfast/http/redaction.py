"""Redaction: records for a reader that lacks the scope `payloads.read`, without values of users.

Left out are params, results, outputs, payloads, questions, progress, and what errors say. What happened, when
and to which step stays: kinds and types of errors, statuses, names, labels, times and costs. Of a bulk
operation its progress, its verb and the numbers of its report stay too: they are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from holdfast.engine.bulk.asked import BULK_TYPE, bulk_numbers, bulk_verb
from holdfast.records.unreadable import read_object
from holdfast.shown.shapes import (
    NULL,
    ApprovalData,
    ErrorData,
    ListedRunData,
    MessageData,
    ResultData,
    RunData,
    RunValuesData,
    ScheduleData,
    Shape,
    StepData,
    TrailEntryData,
)

S = TypeVar("S", bound=Shape)

# Fields of trail rows that hold no value of a user.
TRAIL_FIELDS = frozenset({
    "approved", "attempt", "budget", "by", "child", "children", "cost", "crashes", "delay", "due_at",
    "fence", "forgotten", "kind", "max_attempts", "next", "origin", "priority", "reason", "run_at",
    "schedule", "seq", "started_at", "status", "step", "steps", "timed_out", "topic", "type", "until",
    "worker",
})  # fmt: skip


def redacted(shape: S) -> S:
    """Return the record without values."""
    changes: dict[str, Any] = {}
    match shape:
        case RunValuesData():
            changes = {"params": NULL, "result": NULL, "error": _error(shape.error)}
        case ListedRunData():
            changes = {"error": _error(shape.error)}
            changes |= {name: NULL for name in ("params", "result") if getattr(shape, name) is not UNSET}
        case StepData():
            changes = {"output": NULL, "ask": NULL, "error": _error(shape.error)}
        case ResultData():
            changes = {"result": NULL, "error": _error(shape.error)}
        case ApprovalData():
            changes = {"ask": "", "data": NULL}
        case TrailEntryData():
            changes = {"data": _trail(shape)}
        case MessageData():
            changes = {"payload": NULL, "error": _error(shape.error)}
        case ScheduleData():
            changes = {"params": NULL}
        case _:
            pass
    if isinstance(shape, RunData):
        changes |= {"last_error": None, "fingerprint": None, "progress": NULL, **_of_bulk(shape)}
    return msgspec.structs.replace(shape, **changes, redacted=True) if changes else shape


def _of_bulk(run: RunData) -> dict[str, Any]:
    """Return the values of a bulk operation that are the engine's: not its filter, nor names of steps. Of
    another run there are none.
    """
    if run.type != BULK_TYPE:
        return {}
    kept: dict[str, Any] = {"progress": run.progress}
    for name, read in (("params", bulk_verb), ("result", bulk_numbers)):
        value = getattr(run, name, UNSET)
        if value is not UNSET and bytes(value) != b"null":
            kept[name] = msgspec.Raw(msgspec.json.encode(read(read_object(bytes(value)))))
    return kept


def _error(error: ErrorData | None) -> ErrorData | None:
    if error is None:
        return None
    return msgspec.structs.replace(error, message="", traceback="", args=NULL)


def _trail(entry: TrailEntryData) -> msgspec.Raw:
    data = read_object(bytes(entry.data))
    kept = {name: value for name, value in data.items() if name in TRAIL_FIELDS and _is_short(value)}
    if isinstance(error := data.get("error"), Mapping):
        kept["error"] = {name: error[name] for name in ("kind", "type", "step") if name in error}
    return msgspec.Raw(msgspec.json.encode({} if entry.told or entry.type == "log" else kept))


def _is_short(value: Any) -> bool:
    """Return True for data that a store writes itself: a number, a name, or a list of names."""
    if isinstance(value, list | tuple):
        return all(isinstance(one, str | int | float) for one in value)
    return isinstance(value, str | int | float | bool | None)
