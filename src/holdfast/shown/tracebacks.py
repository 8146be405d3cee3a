"""Tracebacks for people: the frames of users' code, those of libraries folded, each cut marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from holdfast.engine.tracebacks import frame_of
from holdfast.records import Error, Step

from .text import counted

LINES_MAX, CHARS_READ = 40, 100_000
_HEADING = "Traceback (most recent call last):"


class _Block(msgspec.Struct):
    """A frame with its lines of code; or one other line, such as a heading or the message."""

    lines: list[str]
    library: str = ""
    indent: int = -1  # where the word File begins; -1: no frame

    def takes(self, line: str) -> bool:
        """Return True for a line that belongs to this frame: its code, or how often it is repeated."""
        inner = line[self.indent :]
        return (
            self.indent >= 0
            and not line[: self.indent].strip("| ")
            and (inner.startswith((" ", "[Previous line repeated")))
        )


def cause(error: Error, steps: Sequence[Step]) -> Error:
    """The error of the step that made the run fail: it has the place in the user's code.

    If the workflow raised another exception after it, the run's own error has both tracebacks.
    """
    if error.traceback and error.attempt is None:
        return error
    errors = (step.error for step in steps if step.key == error.step)
    return next((one for one in errors if one is not None), error)


def full_lines(traceback: str) -> list[str]:
    """All lines of a traceback, as it is recorded."""
    return traceback.rstrip().splitlines()


def trace_lines(traceback: str) -> list[str]:
    """A traceback for one screen: frames of libraries are folded.

    The last frame stays, if it is not one of Holdfast: it says where in a library the exception was raised.
    """
    lines = list(_folded(_blocks(full_lines(traceback[-CHARS_READ:]))))
    if (unread := len(traceback) - CHARS_READ) > 0:
        lines.insert(0, f"… {unread:,} characters are left out; --full shows all …")
    if len(lines) <= LINES_MAX:
        return lines
    half = LINES_MAX // 2
    left = counted(len(lines) - 2 * half, "line")
    return [*lines[:half], f"… {left} left out; --full shows all …", *lines[-half:]]


def _blocks(lines: Sequence[str]) -> list[_Block]:
    blocks: list[_Block] = []
    for line in lines:
        if (frame := frame_of(line)) is not None:
            blocks.append(_Block([line], frame.library, line.index("File ")))
        elif blocks and blocks[-1].takes(line):
            blocks[-1].lines.append(line)
        else:
            blocks.append(_Block([line]))
    return blocks


def _folded(blocks: Sequence[_Block]) -> Iterator[str]:
    """Yield the lines. The heading counts the frames before those of the user, which come first."""
    number = 0
    while number < len(blocks):
        begin = number
        while number < len(blocks) and _hidden(blocks, number):
            number += 1
        if number > begin:
            yield f"{' ' * blocks[begin].indent}… {_named(blocks[begin:number])}"
            continue
        block, number = blocks[number], number + 1
        begin = number
        while block.lines[0].endswith(_HEADING) and number < len(blocks) and _hidden(blocks, number):
            number += 1
        if number > begin:
            yield f"{block.lines[0][:-2]}, after {_named(blocks[begin:number])}):"
        else:
            yield from block.lines


def _hidden(blocks: Sequence[_Block], number: int) -> bool:
    """Return True for a frame of a library, but for the last frame of all before an exception's message."""
    block = blocks[number]
    last = number + 1 == len(blocks) or blocks[number + 1].indent < 0
    return bool(block.library) and not (last and block.library != "holdfast")


def _named(blocks: Sequence[_Block]) -> str:
    """`6 frames of holdfast, 2 of httpx`."""
    parts = [(name, len(list(group))) for name, group in groupby(blocks, key=lambda one: one.library)]
    (first, many), *others = parts
    return ", ".join([f"{counted(many, 'frame')} of {first}", *(f"{n} of {name}" for name, n in others)])
