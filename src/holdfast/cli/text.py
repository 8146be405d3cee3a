"""How things look: tables, relative times, colours. Pure, but for the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate, takewhile

import click

from holdfast.escaping import escaped

SAID_MAX = 1_000  # characters of one text of others; --json prints all
COLUMN_MAX = 60  # columns of a table's cell on a terminal, but for the last
_PER_COLUMN = 4  # characters, at most
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
    try:
        return at.astimezone().strftime("%H:%M:%S")
    except OverflowError:  # the last instant that there is, further east
        return at.strftime("%H:%M:%S")


def clean(text: object, limit: int = SAID_MAX) -> str:
    """Show text of others on one line, without what steers a terminal; long text is cut and marked."""
    return escaped(text, limit)


def width_of(text: str) -> int:
    """Columns on a terminal; wide characters take two, colours none."""
    plain = click.unstyle(text)
    return len(plain) if plain.isascii() else sum(map(_columns_of, plain))


def _columns_of(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """At most `width` columns of plain text; what is cut ends in an ellipsis."""
    head = text[: _PER_COLUMN * width]  # characters without a width must not go on for ever
    if len(head) == len(text) and width_of(text) <= width:
        return text
    ends = accumulate(map(_columns_of, head))
    kept = sum(1 for _ in takewhile(lambda end: end < width, ends))
    return head[:kept].rstrip() + "…"


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
    """Aligned columns of bounded width; on a terminal the last one is cut, so that no line wraps."""
    most = COLUMN_MAX if sys.stdout.isatty() else SAID_MAX
    every = [head, *([*(_fit(cell, most) for cell in row[:-1]), row[-1]] for row in rows)]
    widths = [max(width_of(row[n]) for row in every) for n in range(len(head) - 1)]
    room = _columns() - len(indent) - sum(widths) - 2 * (len(head) - 1)
    lines = []
    for number, row in enumerate(every):
        cells = [text + " " * (width - width_of(text)) for text, width in zip(row[:-1], widths, strict=True)]
        line = indent + "  ".join([*cells, cut(row[-1], max(room, 8))]).rstrip()
        lines.append(click.style(line, dim=True) if number == 0 else line)
    return lines


def _fit(cell: str, most: int) -> str:
    """A cell that is not the last; one with a colour is a word of ours."""
    return cell if len(cell) <= most or "\x1b" in cell else cut(cell, most)


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
