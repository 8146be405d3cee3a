"""Sequence diagrams of the site: a small part of mermaid's language, drawn as SVG when the site is built.

Git hosts draw a ```mermaid block themselves. In a browser that takes a large script, so the site does not.
Known: `participant`, the arrows `->>` and `-->>`, `alt`, `else` and `end`. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

GAP, TOP, ROW, LETTER = 190, 56, 38, 7

_PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?")
_MESSAGE = re.compile(r"(\w+)(--?>>)(\w+): ?(.+)")
_BLOCK = re.compile(r"(alt|else|end)\b ?(.*)")


class Line(NamedTuple):
    """One row of the drawing: a message, or the beginning, the middle or the end of a frame."""

    kind: str  # "message" | "alt" | "else" | "end"
    text: str
    source: str = ""
    target: str = ""
    dashed: bool = False


class Diagram(NamedTuple):
    """The content of a block: the participants with their words, and the rows."""

    names: dict[str, str]
    lines: list[Line]


def parse(source: str) -> Diagram:
    first, *rest = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if first != "sequenceDiagram":
        message = f"the site draws sequence diagrams only, not {first!r}: see tools/docs/sequence.py"
        raise ValueError(message)
    names: dict[str, str] = {}
    lines: list[Line] = []
    for line in rest:
        if found := _PARTICIPANT.fullmatch(line):
            names[found[1]] = found[2] or found[1]
        elif found := _MESSAGE.fullmatch(line):
            lines.append(Line("message", found[4], found[1], found[3], found[2] == "-->>"))
        elif found := _BLOCK.fullmatch(line):
            lines.append(Line(found[1], found[2]))
        else:
            message = f"no line of a sequence diagram that tools/docs/sequence.py can draw: {line!r}"
            raise ValueError(message)
    return Diagram(names, lines)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def _actors(names: dict[str, str], columns: dict[str, int], bottom: int) -> Iterator[str]:
    for name, words in names.items():
        x = columns[name]
        width = max(96, len(words) * LETTER + 28)
        yield f'<path class="life" d="M{x} 40V{bottom}"/>'
        yield f'<rect class="box" x="{x - width // 2}" y="8" width="{width}" height="32" rx="6"/>'
        yield _text(x, 29, words, "who")


def _rows(diagram: Diagram, columns: dict[str, int], right: int) -> Iterator[str]:
    opened: list[int] = []
    for number, line in enumerate(diagram.lines):
        y = TOP + ROW * (number + 1)
        if line.kind == "message":
            begin, end = columns[line.source], columns[line.target]
            kind = "arrow dashed" if line.dashed else "arrow"
            yield f'<path class="{kind}" d="M{begin} {y}H{end}" marker-end="url(#seq)"/>'
            yield _text((begin + end) / 2, y - 7, line.text, "said")
        elif line.kind == "end":
            top = opened.pop()
            yield f'<rect class="frame" x="4" y="{top}" width="{right - 8}" height="{y - 12 - top}" rx="6"/>'
        else:
            top = y - 22
            if line.kind == "alt":
                opened.append(top)
            else:
                yield f'<path class="life" d="M4 {top}H{right - 4}"/>'
            yield _text(14, top + 18, f"{'if' if line.kind == 'alt' else 'else'} {line.text}", "who", "start")


def draw(source: str) -> str:
    """Return the SVG of a block."""
    diagram = parse(source)
    margin = 88
    columns = {name: margin + GAP * number for number, name in enumerate(diagram.names)}
    right = 2 * margin + GAP * (len(columns) - 1)
    height = TOP + ROW * (len(diagram.lines) + 1)
    head = (
        '<defs><marker id="seq" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>'
    )
    parts = [head, *_actors(diagram.names, columns, height - 8), *_rows(diagram, columns, right)]
    title = f"Sequence: {', '.join(diagram.names.values())}"
    return (
        f'<svg class="sequence" viewBox="0 0 {right} {height}" role="img"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def fence(source: str, language: str, css_class: str, options: Any, md: Any, **others: Any) -> str:
    """Draw a fenced block: mkdocs.yml names this function."""
    del language, css_class, options, md, others
    return f'<div class="drawing">{draw(source)}</div>'
