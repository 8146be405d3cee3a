"""The timeline as SVG. Places are in percent, so that it fits any width; colours come from the stylesheet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from markupsafe import Markup, escape

from holdfast.escaping import escaped
from holdfast.lifecycle import spoken_status
from holdfast.shown.times import span

from .scale import Scale
from .timeline import Bar, Row, Timeline

ROW, HEAD, BAR = 24, 22, 12  # pixels
EDGE = 8.0  # percent: words so near to an end do not stand in the middle of their place
NARROW = 0.5  # percent: the least width of a bar
LETTER = 2.8  # percent that a letter of the axis takes on a phone
_PLACE = 'x="24%" width="59%"'  # of the bars; names are on their left, durations on their right
_EDGE = (  # a long name fades out at the end of its place
    '<linearGradient id="t-edge" class="t-edge"><stop offset="0" stop-opacity="0"/><stop offset="1"/>'
    "</linearGradient>"
)


def drawn(timeline: Timeline, link: Callable[[str], str]) -> Markup:
    """Return the SVG of a timeline. link: gives the address of a step."""
    height = HEAD + ROW * len(timeline.rows)
    rows = (_row(row, HEAD + ROW * n, timeline.scale, link) for n, row in enumerate(timeline.rows))
    text = (
        f'<svg class="timeline" width="100%" height="{height}" aria-hidden="true">'
        f'<svg class="t-axis" {_PLACE} height="{height}">{"".join(_axis(timeline.scale, height))}</svg>'
        f"{_EDGE}{''.join(rows)}</svg>"
    )
    return Markup(text)  # noqa: S704 - every text of others is escaped below


def _axis(scale: Scale, height: int) -> Iterator[str]:
    """Yield the folded gaps, and the words above the axis as far as they do not touch each other."""
    ends: list[tuple[float, float]] = []  # places that are taken by words

    def placed(text: str, at: float, anchor: str) -> Iterator[str]:
        wide = len(text) * LETTER
        left = {"start": at, "middle": at - wide / 2, "end": at - wide}[anchor]
        if all(left > right or left + wide < begin for begin, right in ends):
            ends.append((left, left + wide))
            yield f'<text class="t-words" x="{at:.2f}%" y="14" text-anchor="{anchor}">{escape(text)}</text>'

    for fold in scale.folds:
        at, anchor = (fold.left + fold.right) / 2, "middle"
        if at < EDGE or at > 100 - EDGE:
            at, anchor = (fold.left, "start") if at < EDGE else (fold.right, "end")
        place = f'x="{fold.left:.2f}%" y="{HEAD - 4}" width="{fold.right - fold.left:.2f}%" height="{height}"'
        words = f"{span(fold.seconds)} of idle time"
        yield f'<rect class="t-fold" {place}><title>{escape(words)}</title></rect>'
        yield from placed(span(fold.seconds), at, anchor)
    yield from placed(datetime.fromtimestamp(scale.begin, UTC).strftime("%H:%M:%SZ"), 0.0, "start")
    yield from placed(f"+{span(scale.end - scale.begin)}", 100.0, "end")


def _row(row: Row, top: int, scale: Scale, link: Callable[[str], str]) -> str:
    middle, name = ROW // 2 + 4, escape(escaped(row.step, 60) or "the run")
    body = (
        f'<svg y="{top}" width="100%" height="{ROW}" class="t-{escape(row.status or "queue")}">'
        f'<rect class="t-row" width="100%" height="{ROW}"/>'
        f'<svg width="23%"><text x="4" y="{middle}">{name}<title>{name}</title></text>'
        f'<rect x="85%" width="15%" height="{ROW}" fill="url(#t-edge)"/></svg>'
        f'<svg {_PLACE} height="{ROW}">{"".join(_bar(bar, scale) for bar in row.bars)}</svg>'
        f'<text class="t-took" x="100%" dx="-4" y="{middle}" text-anchor="end">'
        f"{escape(row.took or _word(row))}</text></svg>"
    )
    return f'<a href="{escape(link(row.step))}" tabindex="-1">{body}</a>' if row.step else body


def _word(row: Row) -> str:
    return "to come" if row.status == "pending" else spoken_status(row.status)


def _bar(bar: Bar, scale: Scale) -> str:
    left, right = scale.percent(bar.begin), scale.percent(bar.end)
    width = max(NARROW, right - left)
    return (
        f'<rect class="t-bar t-{bar.kind}" x="{min(left, 100 - width):.2f}%" y="{(ROW - BAR) // 2}" '
        f'width="{width:.2f}%" height="{BAR}" rx="2"><title>{escape(bar.words)}</title></rect>'
    )
