"""Seconds as every store counts them: one rounding, and an end to what counts as a time.

A delay of 1e12 s would be an instant that no calendar holds, and one row with it would break every
list; a larger one does not even fit into a column. A thousand years are as good as for ever.
"""

from __future__ import annotations

from holdfast.arguments import FOREVER_SECONDS
from holdfast.errors import UsageError
from holdfast.records import SECOND


def bounded(seconds: float) -> float:
    """A duration that can be added to any present instant, in whole microseconds."""
    return micros(seconds) / SECOND


def micros(seconds: float) -> int:
    """Microseconds; NaN is no duration."""
    if -FOREVER_SECONDS <= seconds <= FOREVER_SECONDS:
        return round(seconds * SECOND)
    if seconds != seconds:  # noqa: PLR0124 - only NaN differs from itself
        raise UsageError("NaN is no duration: give a number of seconds")
    return round(FOREVER_SECONDS * SECOND) * (1 if seconds > 0 else -1)
