"""Small charts as SVG, made by the server. Colours come from classes of the stylesheet."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

Column = tuple[str, Sequence[tuple[str, float]]]  # the words of a bar, and its parts: a class and a number


def sparkline(numbers: Sequence[float], label: str, *, width: int = 120, height: int = 24) -> Markup:
    """Return a line of numbers. label: the words for those who cannot see it."""
    most, count = max([*numbers, 1]), max(2, len(numbers))
    points = " ".join(
        f"{index * width / (count - 1):.1f},{height - 1 - number * (height - 2) / most:.1f}"
        for index, number in enumerate(numbers)
    )
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}" '
        'preserveAspectRatio="none"><title>{}</title><polyline points="{}"/></svg>'
    ).format(label, width, height, width, height, label, points)


def bars(
    columns: Sequence[Column],
    label: str,
    *,
    width: int = 600,
    height: int = 120,
) -> Markup:
    """Return stacked bars. The parts of each begin at the bottom. label: as in `sparkline`."""
    most = max([sum(number for _, number in parts) for _, parts in columns] + [1])
    step = width / max(1, len(columns))
    drawn: list[Markup] = []
    for index, (words, parts) in enumerate(columns):
        rects, base = [], float(height)
        for class_, number in parts:
            tall = number * (height - 4) / most
            base -= tall
            if number:
                rects.append(
                    Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                        class_, index * step + step * 0.1, base, step * 0.8, tall
                    )
                )
        drawn.append(Markup("<g><title>{}</title>{}</g>").format(words, Markup("").join(rects)))
    return Markup(
        '<svg class="bars" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        "<title>{}</title>{}</svg>"
    ).format(label, width, height, label, Markup("").join(drawn))
