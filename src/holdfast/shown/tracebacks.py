"""Tracebacks of users' code, without the frames of the engine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.records import Error, Step
from holdfast.records.unreadable import read_error

LINES_SHOWN, CHARS_READ = 8, 100_000
_HEADING = "Traceback (most recent call last):"
_ENGINE = re.compile(
    r"[/\\]holdfast[/\\](engine[/\\]|threads[/\\]|sealing[/\\]|(world|arguments|codec|decoding|durations|exact)\.py)"
)


def cause(error: Error, steps: Sequence[Step]) -> Error:
    """The error of the step that made the run fail: it has the place in the user's code."""
    errors = [step.error for step in steps if step.key == error.step and step.error is not None]
    return read_error(errors[0]) if errors else error


def trace_lines(traceback: str) -> list[str]:
    """The end of a traceback under a heading, without the frames of the engine."""
    kept: list[str] = []
    in_engine = False
    for text in traceback[-CHARS_READ:].rstrip().splitlines():
        if text.lstrip().startswith("File "):
            in_engine = _ENGINE.search(text) is not None
        elif not text.startswith("    "):
            in_engine = False
        if not in_engine and text != _HEADING:
            kept.append(text)
    return [_HEADING, *kept[-LINES_SHOWN:]] if kept else []
