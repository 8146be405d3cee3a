"""Frames in the text of a recorded traceback: those of the user's code, and those of libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from holdfast.records import Error

STEP_BEFORE = "\nThe step failed with that, and the workflow was told:\n\n"
TRACEBACK_MAX = 16_000
_HEAD = 4_000  # characters that are kept of the beginning of a long traceback

_FRAME = re.compile(r'[ |]*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_HOLDFAST = re.compile(
    r"[/\\]holdfast[/\\](engine[/\\]|threads[/\\]|sealing[/\\]|stores[/\\]"
    r"|(world|arguments|backoff|codec|decoding|durations|exact|step_keys)\.py)"
)
_LIKE_USERS = re.compile(r"[/\\]holdfast[/\\](cli[/\\]demo|testing)[/\\]")  # they stand for users' code
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
_PYTHON = re.compile(r"^<frozen |[/\\]lib(64)?[/\\]python3\.\d+t?[/\\]|[/\\]Python3\d+[/\\]Lib[/\\]")


class Frame(msgspec.Struct, frozen=True):
    """One frame of a traceback. `library` names the package it belongs to; empty for the user's own code."""

    file: str
    line: int
    function: str
    library: str

    def __str__(self) -> str:
        """`shop.py:12 in charge`, by the path from the current folder if the file is below it."""
        within = f" in {self.function}" if self.function else ""
        return f"{self.file.removeprefix(_here())}:{self.line}{within}"


def _here() -> str:
    try:
        return f"{Path.cwd()}{os.sep}"
    except OSError:  # the folder was removed
        return ""


def frame_of(line: str) -> Frame | None:
    """Return the frame that a line of a traceback begins; None for any other line."""
    found = _FRAME.match(line)
    return Frame(found[1], int(found[2]), found[3] or "", _library(found[1])) if found else None


def _library(file: str) -> str:
    if _HOLDFAST.search(file):
        return "holdfast"
    if found := _PACKAGE.search(file):
        name = found[1].removesuffix(".py")
        return "" if name == "holdfast" and _LIKE_USERS.search(file) else name
    return "Python" if _PYTHON.search(file) else ""


def user_frame(error: Error) -> Frame | None:
    """Return the last frame of the user's code in the traceback of an error, if there is one."""
    step, _, body = error.traceback.partition(STEP_BEFORE)
    # Without tries it was not the step that failed the run: the workflow raised another exception after it.
    text = body if body and error.attempt is None else step
    frames = (frame_of(line) for line in reversed(text.splitlines()))
    return next((one for one in frames if one is not None and not one.library), None)


def bounded(trace: str) -> str:
    """Return the beginning and the end of a long traceback; the cut is marked."""
    if len(trace) <= TRACEBACK_MAX:
        return trace
    head = trace[:_HEAD].rpartition("\n")[0]
    tail = trace[len(head) - TRACEBACK_MAX + 100 :]
    tail = tail.partition("\n")[2] or tail  # whole lines, unless there is only one
    return f"{head}\n… {len(trace) - len(head) - len(tail):,} characters are left out …\n{tail}"
