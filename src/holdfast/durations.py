"""Durations: seconds, timedeltas, or words for them."""

from __future__ import annotations

from datetime import timedelta

from .arguments import Seconds, seconds
from .clipped import clipped
from .errors import UsageError

__all__ = ["Seconds", "days", "hours", "minutes", "seconds", "weeks"]


def minutes(n: float) -> timedelta:
    """`n` minutes."""
    return _span("minutes", n)


def hours(n: float) -> timedelta:
    """`n` hours."""
    return _span("hours", n)


def days(n: float) -> timedelta:
    """`n` days."""
    return _span("days", n)


def weeks(n: float) -> timedelta:
    """`n` weeks."""
    return _span("weeks", n)


def _span(unit: str, n: float) -> timedelta:
    try:
        return timedelta(**{unit: n})
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{unit}({clipped(n)}) is no duration: give a number of {unit}") from None
