"""A time axis in percent, on which idle gaps are folded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[float, float]  # begin and end, in seconds

FOLD_SECONDS = 1.0  # a shorter gap is never folded
FOLD_SHARE = 0.4  # nor one that is a smaller part of the busy time
FOLD_WIDTH, FOLDS_WIDTH = 6.0, 42.0  # percent of the axis: of one folded gap, and of all of them at most


class Fold(NamedTuple):
    """A gap that is drawn short: its length in seconds, and its place in percent."""

    seconds: float
    left: float
    right: float


class Scale:
    """Maps instants to percent. busy: the times at which code was executed."""

    def __init__(self, begin: float, end: float, busy: Iterable[Span]) -> None:
        self.begin, self.end = begin, max(end, begin + 1e-3)
        gaps = self._folded(list(busy))
        width = min(FOLD_WIDTH, FOLDS_WIDTH / len(gaps)) if gaps else 0.0
        plain = (self.end - self.begin) - sum(high - low for low, high in gaps)
        rate = (100.0 - width * len(gaps)) / max(plain, 1e-9)
        # Instants and their percent, between which it is linear.
        self._knots: list[Span] = [(self.begin, 0.0)]
        self.folds: list[Fold] = []
        for low, high in gaps:
            at, left = self._knots[-1]
            left += (low - at) * rate
            self._knots += [(low, left), (high, left + width)]
            self.folds.append(Fold(high - low, left, left + width))
        self._knots.append((self.end, 100.0))

    def _folded(self, busy: Sequence[Span]) -> list[Span]:
        """Return the gaps that are folded: those that are long beside the time in which code was executed."""
        merged = _merged((max(low, self.begin), min(high, self.end)) for low, high in busy)
        if not merged:
            return []
        active = sum(high - low for low, high in merged)
        ends = [self.begin, *(edge for span in merged for edge in span), self.end]
        gaps = zip(ends[::2], ends[1::2], strict=True)
        return [(low, high) for low, high in gaps if high - low > max(FOLD_SECONDS, active * FOLD_SHARE)]

    def percent(self, at: float) -> float:
        """Return the place of an instant."""
        if at <= self.begin:
            return 0.0
        number = bisect_right(self._knots, (at, 100.0))
        if number >= len(self._knots):
            return 100.0
        (low, left), (high, right) = self._knots[number - 1], self._knots[number]
        return left if high <= low else left + (at - low) / (high - low) * (right - left)


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for low, high in sorted(span for span in spans if span[0] <= span[1]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
