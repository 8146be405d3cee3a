"""Masking: a copy of a run for debugging, in which the values of users are hidden.

The shape of each value stays: keys, lengths of lists, true, false and null. Texts and numbers are replaced.
Names stay: ids, types, steps, topics, keys, labels, tenants, kinds of errors.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.decoding import decode_untyped
from holdfast.lifecycle import StepKind
from holdfast.records import Json
from holdfast.records.transfer import CarriedEvent, CarriedNote, CarriedRun, CarriedStep

MASK = "***"
# Fields that the engine reads, in errors and in rows of the trail: they stay.
_ERROR = frozenset({"kind", "type", "step", "attempt", "max_attempts", "since"})
_HIDDEN = frozenset({"message", "comment", "traceback", "args", "note", "error"})
_KIND = re.compile(r"[\w.]+")
_LOG = frozenset({"level", "step", "log_no", "attempt"})


def masked(value: Any) -> Any:
    """Return a value with its texts and numbers hidden."""
    if isinstance(value, dict):
        return {name: masked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    if isinstance(value, str):
        return MASK
    return value if isinstance(value, bool) or value is None else 0


def _json(text: Json | None, hide: Any = masked) -> Any:
    return text if text is None else msgspec.json.encode(hide(decode_untyped(text))).decode()


def _error(error: Any) -> Any:
    if not isinstance(error, dict):
        return masked(error)
    return {name: value if name in _ERROR else masked(value) for name, value in error.items()}


def _taken(output: Any) -> Any:
    """Mask the payload of an event that a wait has taken."""
    return {**output, "payload": masked(output.get("payload"))} if isinstance(output, dict) else output


def _ended(output: Any) -> Any:
    """Mask the result or the error of a child."""
    if not isinstance(output, dict):
        return output
    hidden = {"result": masked, "error": _error}
    return {name: hidden[name](value) if name in hidden else value for name, value in output.items()}


def _decided(output: Any) -> Any:
    return {**output, "comment": masked(output["comment"])} if _has(output, "comment") else output


def _woken(wake: Any) -> Any:
    return {**wake, "event": _taken(wake["event"])} if _has(wake, "event") else wake


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


_OUTPUTS = {
    StepKind.TASK: masked, StepKind.EVENT: _taken, StepKind.CHILD: _ended, StepKind.APPROVAL: _decided,
}  # fmt: skip


def _step(step: CarriedStep) -> CarriedStep:
    hide = _OUTPUTS.get(step.kind)
    return replace(
        step,
        output=step.output if hide is None else _json(step.output, hide),
        error=_json(step.error, _error),
        ask=_json(step.ask),
        wake=_json(step.wake, _woken),
        digest=None,  # of the question: it would let anyone test guesses
    )


def _note(note: CarriedNote) -> CarriedNote:
    def hide(data: Any) -> Any:
        if not isinstance(data, dict):
            return masked(data)
        if note.type == "log" or note.told:
            return {name: value if name in _LOG else masked(value) for name, value in data.items()}
        if note.type == "leaving" and _has(data.get("was"), "row"):
            data = {**data, "was": {**data["was"], "row": _left(data["was"]["row"])}}
        return {
            name: _error(value) if name == "error" else masked(value) if name in _HIDDEN else value
            for name, value in data.items()
        }

    return replace(note, data=_json(note.data, hide))


def _left(row: Any) -> Any:
    """Mask the error of a run as it was before it left its store."""
    if not isinstance(row, dict):
        return row
    return {**row, "error": _json(row.get("error"), _error), "last_error": _line(row.get("last_error"))}


def _line(text: str | None) -> str | None:
    """Mask the error of a run in one line. Its kind stays, if it has one: user SQL writes any text."""
    if text is None:
        return None
    kind, colon, _ = text.partition(":")
    return f"{kind}: {MASK}" if colon and _KIND.fullmatch(kind) else MASK


def masked_run(part: CarriedRun) -> CarriedRun:
    """Return a run, or a part of one, with its values hidden."""
    row = part.row
    if row is not None:
        row = replace(
            row, params=_json(row.params), result=_json(row.result), error=_json(row.error, _error),
            last_error=_line(row.last_error), progress=_json(row.progress), digest="",
        )  # fmt: skip
    messages = [
        replace(one, payload=_json(one.payload), error=_json(one.error, _error)) for one in part.messages
    ]
    return replace(
        part,
        row=row,
        steps=tuple(map(_step, part.steps)),
        notes=tuple(map(_note, part.notes)),
        messages=tuple(messages),
    )


def masked_event(event: CarriedEvent) -> CarriedEvent:
    return replace(event, payload=_json(event.payload))


def masked_params(params: Json) -> Json:
    """Return the params of a schedule with their values hidden."""
    return _json(params) or "null"
