"""Limits in words."""

from __future__ import annotations

from datetime import datetime

from holdfast.records import Limit

from .text import clean
from .times import ago, span


def rate_words(limit: Limit) -> str:
    """`100 in 60 s`; `-` without a rate."""
    return "-" if limit.rate is None else f"{limit.rate} in {span(limit.period_seconds or 0)}"


def limit_sentence(limit: Limit, now: datetime) -> str:
    """All parts of a limit: `key api: 5 at once, 100 in 60 s`."""
    words = [
        *([f"{limit.concurrency} at once"] if limit.concurrency is not None else []),
        *([rate_words(limit)] if limit.rate is not None else []),
        *([f"weight {limit.weight:g}"] if limit.weight is not None else []),
        *([f"paused, ends {ago(limit.paused_until, now)}"] if limit.paused_until is not None else []),
    ]
    return f"{clean(limit.scope)} {clean(limit.name)}: {', '.join(words) or 'no limit'}"
