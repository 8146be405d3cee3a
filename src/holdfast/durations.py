"""Durations: numbers of seconds, timedeltas, and functions that make timedeltas, such as `hours(2)`."""

from __future__ import annotations

from datetime import timedelta

from .arguments import Seconds
from .clipped import clipped
from .errors import UsageError

__all__ = ["Seconds", "days", "hours", "minutes", "seconds", "weeks"]


def seconds(n: float) -> timedelta:
    """Return `n` seconds."""
    return _span("seconds", n)


def minutes(n: float) -> timedelta:
    """Return `n` minutes."""
    return _span("minutes", n)


def hours(n: float) -> timedelta:
    """Return `n` hours."""
    return _span("hours", n)


def days(n: float) -> timedelta:
    """Return `n` days."""
    return _span("days", n)


def weeks(n: float) -> timedelta:
    """Return `n` weeks."""
    return _span("weeks", n)


def _span(unit: str, n: float) -> timedelta:
    try:
        return timedelta(**{unit: n})
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{unit}({clipped(n)}) is not a duration: give a number of {unit}") from None
