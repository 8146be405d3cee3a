"""Errors for the page of a run: the place in the user's code first, then the traceback, folded."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.tracebacks import user_frame
from holdfast.escaping import escaped
from holdfast.records.fingerprints import cause
from holdfast.shown.records import error_of
from holdfast.shown.shapes import ErrorData
from holdfast.shown.steps import error_words
from holdfast.shown.text import clean
from holdfast.shown.tracebacks import trace_lines

WHOLE_MAX = 10_000  # characters of a traceback


class ShownError(NamedTuple):
    """An error. place: the last line of the user's code; lines: the traceback, folded; whole: all of it."""

    words: str
    place: str
    lines: str
    whole: str
    tries: str
    step: str | None


def caused(data: ErrorData | None) -> tuple[str, str]:
    """Return type and message of an error; of a step that failed, those of the exception inside."""
    if data is None:
        return "", ""
    type_, message = cause(data.type or data.kind, data.message)
    if type_ == "StepFailed":  # the step stands beside it
        message = message.partition("' failed: ")[2] or message
    return type_, message


def shown_error(data: ErrorData | None) -> ShownError | None:
    """Return an error as the page shows it."""
    error = error_of(data)
    if error is None:
        return None
    frame = user_frame(error)
    tries = (
        ""
        if error.attempt is None or error.max_attempts is None
        else f"{error.attempt} of {error.max_attempts}"
    )
    return ShownError(
        words=clean(error_words(error)),
        place="" if frame is None else clean(frame),
        lines="\n".join(escaped(line, 1_000) for line in trace_lines(error.traceback))
        if error.traceback
        else "",
        whole=error.traceback[-WHOLE_MAX:],
        tries=tries,
        step=error.step,
    )
