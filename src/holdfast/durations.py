"""Durations: seconds, timedeltas, or words for them."""

from __future__ import annotations

from datetime import timedelta

Seconds = float | int | timedelta


def seconds(value: Seconds) -> float:
    """A duration as a number of seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


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
