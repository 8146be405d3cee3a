"""Limits on what people hand in, each with one clear line."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.durations import Seconds, seconds
from holdfast.errors import UsageError
from holdfast.records import COST_UNIT

TOPIC_MAX = 512
NAME_MAX = 255
KEY_MAX = 640  # above that of a topic, which is part of keys; an index of Postgres holds 2,700 bytes
TEXT_MAX = 10_000
BUDGET_MAX = 1_000_000_000
SEPARATOR = "\x1f"  # scopes the keys of tenants in the stores


def check_topic(topic: Any) -> str:
    """The topic itself: 1 to 512 characters, any but NUL."""
    said = _text("topic", topic)
    if not said or len(said) > TOPIC_MAX or not _storable(said):
        raise UsageError(f"topic {said[:40]!r}: 1 to {TOPIC_MAX} characters of text, without NUL")
    return said


def check_name(what: str, name: Any) -> str:
    """A key, tenant or event id: 1 to 255 characters, without NUL or U+001F."""
    said = _text(what, name)
    if not said or len(said) > NAME_MAX or SEPARATOR in said or not _storable(said):
        raise UsageError(f"{what} {said[:40]!r}: 1 to {NAME_MAX} characters of text, without NUL or U+001F")
    return said


def check_text(what: str, text: Any) -> str:
    """Words of a person, empty ones too: text that every store can keep."""
    said = _text(what, text)
    if len(said) > TEXT_MAX or not _storable(said):
        raise UsageError(f"{what} {said!r:.60}: text of at most {TEXT_MAX:,} characters, without NUL")
    return said


def check_sought(**sought: Any) -> None:
    """What is looked for, where anything is: text that could be there."""
    for what, text in sought.items():
        if text is not None:
            check_text(what, text)


def check_by(by: Any) -> str:
    """Who does something, for the trail; empty: nobody says."""
    return check_text("by", by)


def check_budget(what: str, budget: Any) -> int:
    """A cost at which a run pauses, more than nothing; in the units that costs are kept in."""
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget <= BUDGET_MAX:
        raise UsageError(f"{what}={budget!r}: a cost above 0, at most {BUDGET_MAX:,}")
    return max(1, round(budget * COST_UNIT))


def check_attempts(what: str, attempts: Any) -> int | None:
    """A number of attempts, at least one; None: as something else says."""
    if attempts is not None and (not isinstance(attempts, int) or attempts < 1):
        raise UsageError(f"{what}: attempts is {attempts!r}: at least 1, the first execution counts")
    return attempts


def check_key(key: Any) -> str:
    """A step's name or key: text that every store can keep, and look for."""
    if not isinstance(key, str) or not key or len(key) > KEY_MAX or not _storable(key):
        raise UsageError(
            f"a step's name and key are text of at most {KEY_MAX} characters, without NUL, not {key!r:.60}"
        )
    return key


def check_step_name(name: Any) -> str:
    """The name of a plan's task, which people read in lists."""
    if not check_key(name).strip():
        raise UsageError(f"a plan's step has a name that can be seen, not {name!r:.60}")
    return str(name)


def check_priority(priority: Any) -> int:
    """0 to 999, lower first."""
    if not isinstance(priority, int) or not 0 <= priority <= 999:
        raise UsageError(f"priority {priority!r}: a whole number from 0 to 999, lower goes first")
    return priority


def check_kept(what: str, kept: Seconds) -> float:
    """How long something is kept, in seconds."""
    if (total := seconds(kept)) < 0:
        raise UsageError(f"{what} is {total:g} s: how long runs are kept, 0 or more")
    return total


def _text(what: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UsageError(f"{what} {value!r:.60}{_which(value)}: give text")


def _which(value: Any) -> str:
    """What is wrong with one that is no text."""
    kind = type(value).__name__
    known = isinstance(value, str) or value is None
    return "" if known else f" is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


OPTIONS = [
    "key",
    "id",
    "priority",
    "run_at",
    "delay",
    "timeout",
    "max_attempts",
    "ttl",
    "budget",
    "limit_key",
    "parent",
    "tenant",
    "labels",
    "connection",
]


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a start, all of them known."""
    if "connection" in options:
        raise UsageError("one connection serves all: start_many([…], connection=connection)")
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"start has no option {unknown[0]!r}: there are {', '.join(OPTIONS)}")
    return options


CHILD_OPTIONS = [one for one in OPTIONS if one not in {"key", "id", "parent", "tenant", "connection"}]


def check_child_options(options: dict[str, Any]) -> None:
    """What a child may be started with, beside `key`, which is that of its step."""
    unknown = sorted(set(options) - set(CHILD_OPTIONS))
    if unknown:
        raise UsageError(
            f"a child run has no option {unknown[0]!r}: there are {', '.join(CHILD_OPTIONS)}; its tenant and "
            f"parent are given, and `key` names its step, which is recorded once"
        )


def check_datetime(what: str, at: Any) -> datetime:
    """A datetime, not a number."""
    if not isinstance(at, datetime):
        raise UsageError(f"{what} {at!r}: a datetime; for seconds from now use `delay`")
    return at


def check_labels(labels: Any) -> dict[str, str]:
    """Names and values, all text."""
    if not isinstance(labels, dict) or not all(
        isinstance(one, str) for pair in labels.items() for one in pair
    ):
        raise UsageError(
            f"labels {labels!r:.200}: a dict of text to text, as in {{'team': 'billing'}}{_odd(labels)}"
        )
    return labels


def _odd(labels: Any) -> str:
    parts = [one for pair in labels.items() for one in pair] if isinstance(labels, dict) else []
    return next((f"; {one!r:.60}{_which(one)}" for one in parts if not isinstance(one, str)), "")


def check_id(run: UUID | str) -> UUID:
    """A run's id, also as text."""
    if isinstance(run, UUID):
        return run
    try:
        return UUID(run)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{run!r} is no run id: ids look like 0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
        ) from None
