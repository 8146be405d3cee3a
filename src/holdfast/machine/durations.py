"""Durations: seconds to microseconds with one rounding for all stores, limited to a thousand years.

A delay of 1e12 s would give an instant that no calendar can show, and one row with it would break every list.
A larger one does not even fit into a column.
"""

from __future__ import annotations

from holdfast.arguments import FOREVER_SECONDS
from holdfast.errors import UsageError
from holdfast.records import SECOND


def bounded(seconds: float) -> float:
    """Return the duration, limited and rounded to whole microseconds."""
    return micros(seconds) / SECOND


def micros(seconds: float) -> int:
    """Return the duration in microseconds. NaN is refused."""
    if -FOREVER_SECONDS <= seconds <= FOREVER_SECONDS:
        return round(seconds * SECOND)
    if seconds != seconds:  # noqa: PLR0124 - only NaN differs from itself
        raise UsageError("NaN is no duration: give a number of seconds")
    return round(FOREVER_SECONDS * SECOND) * (1 if seconds > 0 else -1)
