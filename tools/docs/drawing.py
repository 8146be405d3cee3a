"""Drawing of the moves of a run, as SVG. Places are chosen by hand; words come from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from holdfast.lifecycle import Move, Status

WIDTH, HEIGHT = 940, 350
BOX = (120, 44)


class Look(NamedTuple):
    """The middle of a box, and its colours."""

    x: int
    y: int
    fill: str
    line: str


class Arrow(NamedTuple):
    """One arrow: the moves that it stands for, its two ends, and where its words are."""

    moves: tuple[str, ...]
    source: str
    target: str
    begin: tuple[int, int]
    end: tuple[int, int]
    label: tuple[int, int]
    anchor: str = "middle"


_BLUE, _GREEN, _RED, _GREY = (
    ("#e3f2fd", "#1565c0"),
    ("#e8f5e9", "#2e7d32"),
    ("#ffebee", "#c62828"),
    ("#f5f5f5", "#616161"),
)
PLACES = {
    Status.PENDING: Look(200, 90, *_BLUE),
    Status.LEASED: Look(530, 90, *_BLUE),
    Status.PAUSED: Look(200, 270, *_BLUE),
    Status.WAITING: Look(530, 270, *_BLUE),
    Status.SUCCEEDED: Look(850, 90, *_GREEN),
    Status.FAILED: Look(850, 190, *_RED),
    Status.CANCELLED: Look(850, 290, *_GREY),
}
FRAME = (110, 30, 520, 300)  # around the open statuses: x, y, width, height
# A settled wait makes its run pending: that is in the table of waits, not in the table of runs.
SETTLED = (Status.WAITING, Status.PENDING)

ARROWS = (
    Arrow((Move.START,), "[*]", Status.PENDING, (40, 90), (140, 90), (75, 82)),
    Arrow((Move.CLAIM,), Status.PENDING, Status.LEASED, (260, 80), (470, 80), (365, 72)),
    Arrow(
        (Move.RETRY, Move.RELEASE, Move.EXPIRE),
        Status.LEASED,
        Status.PENDING,
        (470, 100),
        (260, 100),
        (365, 116),
    ),
    Arrow((Move.PARK,), Status.LEASED, Status.WAITING, (530, 112), (530, 248), (538, 185), "start"),
    Arrow((), *SETTLED, (480, 248), (235, 112), (392, 182)),
    Arrow((Move.PAUSE,), Status.PENDING, Status.PAUSED, (180, 112), (180, 248), (172, 185), "end"),
    Arrow((Move.RESUME,), Status.PAUSED, Status.PENDING, (205, 248), (205, 112), (212, 225), "start"),
    Arrow((Move.PAUSE,), Status.WAITING, Status.PAUSED, (470, 262), (260, 262), (365, 255)),
    Arrow((Move.RESUME,), Status.PAUSED, Status.WAITING, (260, 282), (470, 282), (365, 298)),
    Arrow((Move.COMPLETE,), Status.LEASED, Status.SUCCEEDED, (590, 86), (790, 86), (710, 78)),
    Arrow((Move.FAIL, Move.EXPIRE), Status.LEASED, Status.FAILED, (590, 104), (790, 176), (700, 132)),
    Arrow((Move.TIME_OUT,), Status.WAITING, Status.FAILED, (630, 196), (790, 196), (710, 211)),
    Arrow((Move.CANCEL,), Status.WAITING, Status.CANCELLED, (630, 290), (790, 290), (710, 282)),
)

_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L10 5L0 10z" fill="#546e7a"/></marker></defs>'
)
_STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#37474f}"
    ".status{font-weight:600;font-size:14px}.small{font-size:11px}"
    ".frame{fill:#fafafa;stroke:#90a4ae;stroke-dasharray:5 4}"
    ".move{paint-order:stroke;stroke:#fff;stroke-width:4px}.arrow{stroke:#546e7a;stroke-width:1.5;fill:none}"
)


def _words(x: int, y: int, words: str, kind: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def _box(status: Status, look: Look) -> Iterator[str]:
    width, height = BOX
    yield (
        f'<rect x="{look.x - width // 2}" y="{look.y - height // 2}" width="{width}" height="{height}" '
        f'rx="8" fill="{look.fill}" stroke="{look.line}"/>'
    )
    shown = status is Status.LEASED
    yield _words(look.x, look.y + (0 if shown else 5), status, "status")
    if shown:
        yield _words(look.x, look.y + 15, "shown as running", "small")


def _arrow(arrow: Arrow, words: str) -> Iterator[str]:
    (x1, y1), (x2, y2) = arrow.begin, arrow.end
    yield f'<path class="arrow" d="M{x1} {y1}L{x2} {y2}" marker-end="url(#head)"/>'
    yield _words(*arrow.label, words, "move", arrow.anchor)


def svg(wait_moves: Sequence[str]) -> str:
    """Return the whole drawing; `wait_moves` are the moves that settle a wait."""
    x, y, width, height = FRAME
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>The moves of a run</title>",
        f"<style>{_STYLE}</style>",
        _HEAD,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>',
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" class="frame"/>',
        _words(x + width - 12, y + 18, "open", "small", "end"),
        '<circle cx="34" cy="90" r="7" fill="#37474f"/>',
    ]
    for arrow in ARROWS:
        moves = arrow.moves or wait_moves
        lines += _arrow(arrow, ", ".join(moves))
    for status, look in PLACES.items():
        lines += _box(status, look)
    return "\n".join([*lines, "</svg>"]) + "\n"
