"""Durations: seconds, timedeltas, or words for them."""

from __future__ import annotations

from datetime import timedelta

from .errors import UsageError

Seconds = float | int | timedelta


def seconds(value: Seconds) -> float:
    """A duration as a number of seconds."""
    try:
        total = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError):
        wanted = "give a number of seconds, or a timedelta such as hf.minutes(5)"
        raise UsageError(f"{value!r} is no duration: {wanted}") from None
    if total != total:  # noqa: PLR0124 - only NaN differs from itself
        raise UsageError("NaN is no duration: give a number of seconds")
    return total


def minutes(n: float) -> timedelta:
    """`n` minutes."""
    return timedelta(minutes=n)


def hours(n: float) -> timedelta:
    """`n` hours."""
    return timedelta(hours=n)


def days(n: float) -> timedelta:
    """`n` days."""
    return timedelta(days=n)


def weeks(n: float) -> timedelta:
    """`n` weeks."""
    return timedelta(weeks=n)
