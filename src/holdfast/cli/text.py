"""How things look: tables, relative times, colours. Pure, but for the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

import click

COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "leased": "cyan",
    "running": "cyan",
    "waiting": "yellow",
    "ready": "yellow",
    "paused": "magenta",
}
_STEPS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "min"), (0, 1, "s"))


def status_word(status: str) -> str:
    """A status in its colour."""
    colour = COLOURS.get(str(status))
    return click.style(str(status), fg=colour) if colour else str(status)


def span(seconds: float) -> str:
    """A length of time in one unit: 0.31 s, 12 s, 5 min, 3 h, 4 d."""
    if 0 < seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)  # just below two days are not 47 hours
    _, unit, word = next(one for one in _STEPS if whole >= one[0])
    return f"{whole / unit:.0f} {word}"


def ago(at: datetime | None, now: datetime) -> str:
    """An instant as a person says it."""
    if at is None:
        return "-"
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def stamp(at: datetime | None) -> str:
    """An instant to the second, in UTC as everywhere in the store."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(at: datetime) -> str:
    """Time of day on this machine, for lines that appear as things happen."""
    return at.astimezone().strftime("%H:%M:%S")


def clean(text: object) -> str:
    """Text of users on one line: no line breaks, no escape sequences that would steer the terminal."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in str(text))


def width_of(text: str) -> int:
    """Columns on a terminal; wide characters take two, colours none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in click.unstyle(text)
    )


def cut(text: str, width: int) -> str:
    """At most `width` columns of plain text."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def wrapped(text: str, indent: int) -> list[str]:
    """Text below a margin; on a terminal its lines are broken between words, elsewhere it is one."""
    margin = " " * indent
    return textwrap.wrap(
        text,
        max(_columns(), indent + 20),
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Aligned columns; on a terminal the last one is cut, so that no line wraps."""
    every = [head, *rows]
    widths = [max(width_of(row[n]) for row in every) for n in range(len(head))]
    room = _columns() - len(indent) - sum(widths[:-1]) - 2 * (len(head) - 1)
    lines = []
    for number, row in enumerate(every):
        cells = [text + " " * (width - width_of(text)) for text, width in zip(row[:-1], widths, strict=False)]
        line = indent + "  ".join([*cells, cut(row[-1], max(room, 8))]).rstrip()
        lines.append(click.style(line, dim=True) if number == 0 else line)
    return lines


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
