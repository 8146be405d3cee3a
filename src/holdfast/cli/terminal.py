"""Output on a terminal: colours, tables, line breaks, JSON that cannot steer a terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Any

import click
import msgspec

from holdfast.lifecycle import spoken_status
from holdfast.records import Json
from holdfast.shown.text import TEXT_MAX

COLUMN_MAX = 60  # columns of a table's cell on a terminal, except for the last cell
_CHARS_PER_COLUMN = 4  # at most: combining characters take no column
COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "leased": "cyan",
    "running": "cyan",
    "waiting": "yellow",
    "ready": "yellow",
    "paused": "magenta",
    "sent": "green",
    "dead": "red",
}


def print_json(value: Any) -> None:
    """Print one document on one line, in UTF-8 whatever the terminal's encoding is."""
    click.echo(terminal_safe(msgspec.json.encode(value).decode()).encode())


def terminal_safe(text: Json) -> Json:
    """Return the JSON with control characters written as escapes."""
    if text.isprintable():
        return text
    odd = "".join(char for char in set(text) if not char.isprintable() and unicodedata.category(char) != "Zs")
    return re.sub(f"[{re.escape(odd)}]", _escape, text) if odd else text


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(found[0])[1:-1]  # a surrogate pair


def coloured_status(status: str) -> str:
    """The word for a status, in its colour."""
    colour = COLOURS.get(str(status))
    return click.style(spoken_status(status), fg=colour) if colour else spoken_status(status)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    rows = list(facts)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"  {name:<{width}}  {text}")


def width_of(text: str) -> int:
    """Columns on a terminal; wide characters take two, colours none."""
    plain = click.unstyle(text)
    return len(plain) if plain.isascii() else sum(map(_columns_of, plain))


def _columns_of(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """At most `width` columns of text without colours; a cut text ends in an ellipsis."""
    head = text[: _CHARS_PER_COLUMN * width]  # else a text of combining characters would never be cut
    if len(head) == len(text) and width_of(text) <= width:
        return text
    ends = accumulate(map(_columns_of, head))
    kept = sum(1 for _ in takewhile(lambda end: end < width, ends))
    return head[:kept].rstrip() + "…"


def wrapped(text: str, indent: int) -> list[str]:
    """Indented text: broken between words on a terminal, one line elsewhere."""
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
    most = COLUMN_MAX if sys.stdout.isatty() else TEXT_MAX
    every = [head, *([*(_fit(cell, most) for cell in row[:-1]), row[-1]] for row in rows)]
    widths = [max(width_of(row[n]) for row in every) for n in range(len(head) - 1)]
    left = _columns() - len(indent) - sum(widths) - 2 * (len(head) - 1)
    lines = []
    for number, row in enumerate(every):
        cells = [text + " " * (width - width_of(text)) for text, width in zip(row[:-1], widths, strict=True)]
        line = indent + "  ".join([*cells, cut(row[-1], max(left, 8))]).rstrip()
        lines.append(click.style(line, dim=True) if number == 0 else line)
    return lines


def _fit(cell: str, most: int) -> str:
    """A cell that is not the last, cut unless it is coloured: only our own short words have colours."""
    return cell if len(cell) <= most or "\x1b" in cell else cut(cell, most)


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
