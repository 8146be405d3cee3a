"""Errors as they are recorded: kind, type, message, traceback. Recording one cannot itself fail."""

from __future__ import annotations

import traceback

import msgspec

from holdfast.backoff import Backoff
from holdfast.errors import (
    BadValue,
    Drift,
    EventTimeout,
    Fatal,
    HistoryFull,
    RunOverdue,
    StepFailed,
    UsageError,
)
from holdfast.records import Error, Json

MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000


def text(value: object, limit: int = MESSAGE_MAX) -> str:
    """Any object as text that every store can keep."""
    try:
        said = str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ of user code must not hide its error
        said = f"<{type(value).__qualname__} that cannot be printed>"
    return said.encode("utf-8", "replace").decode().replace("\0", "\\0")[:limit]


def error_of(error: BaseException, kind: str, step: str | None = None) -> Error:
    """What is recorded of an exception."""
    trace = text("".join(traceback.format_exception(error)), 10 * TRACEBACK_MAX)[-TRACEBACK_MAX:]
    return Error(kind=kind, type=type(error).__qualname__, message=text(error), traceback=trace, step=step)


def encoded(error: Error) -> Json:
    """An error as JSON text."""
    return msgspec.json.encode(error).decode()


def line(error: Error) -> str:
    """An error in one line, for people."""
    what = error.message if error.type == "StepFailed" else f"{error.type}: {error.message}"
    return f"{error.kind}: {what}".replace("\n", " ")[:500]


def final_kind(error: BaseException, policy: Backoff) -> str | None:
    """The kind with which this exception fails a run at once; None when it may be tried again."""
    match error:
        case StepFailed():
            return error.kind
        case EventTimeout() | RunOverdue():
            return "timeout"
        case Drift():
            return "drift"
        case HistoryFull():
            return "history"
        case BadValue():
            return "encoding"
        case Fatal() | UsageError():
            return "fatal"
        case _:
            pass
    return "fatal" if policy.fatal and isinstance(error, policy.fatal) else None


def guilty_step(error: BaseException | None) -> str | None:
    """The step whose recorded failure is at the root of this exception, if one is."""
    for _ in range(20):
        if error is None or isinstance(error, StepFailed | EventTimeout):
            break
        error = error.__cause__ or error.__context__
    return error.step if isinstance(error, StepFailed | EventTimeout) else None
