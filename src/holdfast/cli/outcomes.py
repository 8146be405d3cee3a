"""What came of a step, in a line: a value, an error, a decision, a child's end."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Json, Step, moment
from holdfast.records.reading import MARK, UNREADABLE, Unreadable, read, read_error, read_object

from .find import short
from .text import ago, clean, stamp


def outcome(step: Step, now: datetime) -> str:
    """What is worth a line of this step."""
    if step.status is StepStatus.WAITING:
        return clean(_open(step, now))
    if step.left_out and step.status is StepStatus.SUCCEEDED and step.output is None:
        return "a large value: see it with --json"
    if step.kind is StepKind.APPROVAL and step.output is not None:
        return clean(_decision(step.output))
    if step.kind is StepKind.CHILD and step.output is not None:
        return clean(_child(step.output))
    if step.error is not None:
        again = (
            f"; again {ago(moment(step.due_at), now)}"
            if step.status is StepStatus.READY and step.due_at
            else ""
        )
        return clean(error_words(step.error)) + again
    return clean(_output(step))


def error_words(text: Json) -> str:
    """An error's kind and message."""
    error = read_error(text)
    return f"{error.kind}: {error.message}" if error.message else error.kind


def _open(step: Step, now: datetime) -> str:
    due = f"due {ago(moment(step.due_at), now)}" if step.due_at else ""
    match step.kind:
        case StepKind.APPROVAL:
            ask = read_object(step.ask).get("ask")
            return "; ".join(filter(None, [f"asks: {ask}" if ask else "until someone decides", due]))
        case StepKind.CHILD:
            return f"until child {short(str(step.child))} has ended"
        case _:
            return due or "until it comes"


def _decision(output: Json) -> str:
    said = read_object(output)
    if MARK in said:
        return f"{UNREADABLE} ({said[MARK]})"
    word = "approved" if said.get("approved") else "rejected"
    if said.get("timed_out"):
        return f"{word}: nobody decided in time"
    by = f" by {said['by']}" if said.get("by") else ""
    return f"{word}{by}" + (f": {said['comment']}" if said.get("comment") else "")


def _child(output: Json) -> str:
    end = read(output, dict[str, msgspec.Raw])
    if isinstance(end, Unreadable):
        return str(end)
    run, status = (str(read(bytes(end.get(name, b"null")))) for name in ("run", "status"))
    error, result = end.get("error"), end.get("result")
    said = ""
    if error is not None and bytes(error) != b"null":
        said = f": {error_words(bytes(error).decode())}"
    elif result is not None:
        said = f": {bytes(result).decode()}"
    return f"child {short(run)} {status}{said}"


def _output(step: Step) -> str:
    """Of an event its payload, of a sleep nothing."""
    match step.kind:
        case StepKind.SLEEP | StepKind.EMIT:
            return ""
        case StepKind.NOW:
            at = read(step.output or "0", int)
            return str(at) if isinstance(at, Unreadable) else stamp(moment(at))
        case StepKind.EVENT if step.output is not None:
            came = read(step.output, _Came)
            return str(came) if isinstance(came, Unreadable) else bytes(came.payload).decode()
    return step.output or ""


class _Came(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")
