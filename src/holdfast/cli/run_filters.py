"""The filters of `ls` in words: statuses, types, labels and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from holdfast.arguments import check_percent
from holdfast.cli.options import duration
from holdfast.errors import UsageError
from holdfast.lifecycle import ALIASES, Status, StepKind, spoken_status

TIMES = {"started": "created", "finished": "finished", "changed": "updated"}  # by the word of --by
_AGO = re.compile(r"[0-9.]+\s*(ms|s|m|h|d|w)")


def statuses(texts: tuple[str, ...]) -> tuple[Status, ...]:
    """The statuses that these words mean."""
    return tuple(_status(one) for one in texts)


def _status(text: str) -> Status:
    word = text.lower().replace("-", "_")
    if word in ALIASES:
        return ALIASES[word]
    try:
        return Status(word)
    except ValueError:
        others = ", ".join([Status.LEASED, *(word for word in ALIASES if word != "running")])
        raise UsageError(
            f"{text!r} is not a status: use {', '.join(map(spoken_status, Status))} (or one of: {others})"
        ) from None


def gate(texts: tuple[str, ...]) -> StepKind | None:
    """The kind of wait that one of these words means besides a status."""
    return (
        StepKind.APPROVAL if "waiting_approval" in (one.lower().replace("-", "_") for one in texts) else None
    )


def pattern(type_: str | None) -> str | None:
    """A name without a version stands for all its versions."""
    if type_ is None or type_.endswith("%") or type_.rpartition(".v")[2].isdigit():
        return type_
    check_percent("type", type_)
    if "*" in type_:
        raise UsageError(f"--type {type_!r}: a prefix ends in %, as in {type_.partition('*')[0]}%")
    return f"{type_}.v%"


def labels(texts: tuple[str, ...]) -> dict[str, str | None]:
    """`customer=42` is a label with its value, `customer` a label with any value."""
    found: dict[str, str | None] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or name in found:
            raise UsageError(f"--label {text!r}: write NAME=VALUE, or NAME for any value; each name once")
        found[name] = value if sign else None
    return found


def times(since: str | None, until: str | None, by: str, now: datetime) -> dict[str, Any]:
    """The fields of the filter for --since and --until."""
    given = {"since": since, "until": until}
    return {
        f"{TIMES[by]}_{name}": when(f"--{name}", text, now)
        for name, text in given.items()
        if text is not None
    }


def when(option: str, text: str, now: datetime) -> datetime:
    """An instant: `2h` or `3d` before now, a date (its begin in UTC), or a time with its zone."""
    try:
        if _AGO.fullmatch(text.strip()):
            return now - timedelta(seconds=duration(text))
        at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, click.BadParameter):
        raise UsageError(
            f"{option} {text!r} is no time: write 2h or 3d (ago), a date such as 2026-01-31, or a time with "
            "its zone such as 2026-01-31T10:00Z"
        ) from None
    if at.tzinfo is None and len(text.strip()) > len("2026-01-31"):
        raise UsageError(
            f"{option} {text!r} has no time zone: add one, as in {text.strip()}Z or {text.strip()}+02:00"
        )
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
