"""A step in words: its outcome in one line, its duration, its errors."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import named
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import SECOND, Error, Json, Step, moment
from holdfast.records.unreadable import MARK, UNREADABLE, Unreadable, read, read_error, read_object

from .text import clean, short
from .times import ago, span, stamp


def duration(step: Step) -> str:
    """The time that the step took; `-` while it is open."""
    if not step.finished_at or not step.started_at:
        return "-"
    # One instant is the worker's, the other the store's: a quick step may seem to end before it began.
    return span(max(step.finished_at - step.started_at, 0) / SECOND)


def attempts(step: Step) -> str:
    """The number of attempts; `2 of 5` for a step that is or may be retried."""
    if not step.attempts:
        return "-"
    most = None if step.status is StepStatus.SUCCEEDED else step.max_attempts
    return f"{step.attempts}" if most is None else f"{step.attempts} of {most}"


def kind_word(step: Step) -> str:
    """The kind of a step for people: a message to a sink is sent, although it is recorded as an event is."""
    return "send" if step.kind is StepKind.EMIT and step.key.startswith("send:") else step.kind


def outcome(step: Step, now: datetime) -> str:
    """The outcome of a step in one line: a value, an error, a decision, the end of a child run."""
    if step.status is StepStatus.WAITING:
        return clean(_open_wait(step, now))
    if step.left_out and step.status is StepStatus.SUCCEEDED and step.output is None:
        return "a large value: see it with --json"
    if step.kind is StepKind.APPROVAL and step.output is not None:
        return clean(_decision(step.output))
    if step.kind is StepKind.CHILD and step.output is not None:
        return clean(_child(step.output))
    if (error := step.error) is not None:
        retried = step.status is StepStatus.READY and step.due_at
        again = f"; retry {ago(moment(step.due_at), now)}" if retried and step.due_at else ""
        return clean(error_words(error)) + again
    return clean(_output(step))


def error_words(error: Error) -> str:
    """The kind of an error, the class of the exception, and its message."""
    what = named(error)
    return f"{error.kind}: {what}" if what else error.kind


def _open_wait(step: Step, now: datetime) -> str:
    due = f"due {ago(moment(step.due_at), now)}" if step.due_at else ""
    match step.kind:
        case StepKind.APPROVAL:
            ask = read_object(step.ask).get("ask")
            return "; ".join(filter(None, [f"asks: {ask}" if ask else "until someone decides", due]))
        case StepKind.CHILD:
            return f"until child run {short(str(step.child))} has ended"
        case _:
            return due or "until the event arrives"


def _decision(output: Json) -> str:
    decision = read_object(output)
    if MARK in decision:
        return f"{UNREADABLE} ({decision[MARK]})"
    word = "approved" if decision.get("approved") else "rejected"
    if decision.get("timed_out"):
        return f"{word}: nobody decided before the deadline"
    by = f" by {decision['by']}" if decision.get("by") else ""
    return f"{word}{by}" + (f": {decision['comment']}" if decision.get("comment") else "")


def _child(output: Json) -> str:
    end = read(output, dict[str, msgspec.Raw])
    if isinstance(end, Unreadable):
        return str(end)
    run, status = (str(read(bytes(end.get(name, b"null")))) for name in ("run", "status"))
    error, result = end.get("error"), end.get("result")
    value = ""
    if error is not None and bytes(error) != b"null":
        value = f": {error_words(read_error(bytes(error)))}"
    elif result is not None:
        value = f": {bytes(result).decode()}"
    return f"child run {short(run)} {status}{value}"


def _output(step: Step) -> str:
    """The payload of an event, the value of other steps; nothing for a sleep."""
    match step.kind:
        case StepKind.SLEEP | StepKind.EMIT:
            return ""
        case StepKind.NOW:
            at = read(step.output or "0", int)
            return str(at) if isinstance(at, Unreadable) else stamp(moment(at))
        case StepKind.EVENT if step.output is not None:
            event = read(step.output, _Event)
            return str(event) if isinstance(event, Unreadable) else bytes(event.payload).decode()
    return step.output or ""


class _Event(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")
