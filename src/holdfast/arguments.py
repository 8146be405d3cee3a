"""Checks of arguments: numbers, durations, times and names from callers, definitions and workflows.

Each rule has one function here, and every layer uses it. A check returns the value in its stored form, or
raises a `UsageError` of one line that says what is wrong and what is right. Values in messages are clipped: a
text of 10 MB or a number of 100,000 digits is never printed.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from .clipped import CLIPPED_MAX, clipped
from .errors import BadType, UsageError
from .records import COST_UNIT, EPOCH, Instant

Seconds = float | int | timedelta
Word = TypeVar("Word", bound=StrEnum)

WHOLE_MAX = 2**31 - 1  # the limit of a 32-bit column
BIG_MAX = 2**63 - 1  # fences, revisions and list positions: the limit of a 64-bit column
FOREVER_SECONDS = 1000 * 365.25 * 86400.0
LATEST: Instant = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
EARLIEST: Instant = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LEASE_MIN_SECONDS, LEASE_MAX_SECONDS = 0.5, 86_400.0
TOPIC_MAX = 512
NAME_MAX = 255
TENANT_BYTES = 512  # a tenant and the longest topic are together in an index entry of at most 2,700 bytes
ALL_TENANTS = "*"  # all tenants, where an operator asks through the HTTP API: no tenant has this name
TEXT_MAX = 10_000
COST_MAX = 1_000_000_000  # for a step and for a budget: sums stay far below the limit of a store's integers
PROGRESS_MAX = 2**53  # every reader of JSON keeps whole numbers up to this exactly
SEPARATOR = "\x1f"  # stands between tenant and key in the stores

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
_VERSION = re.compile(r"v[0-9]+")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and surrogates that stand alone
_TYPE = re.compile(_NAME.pattern + r"\.v[1-9][0-9]*")


def is_whole(value: object, least: int, most: int) -> bool:
    """Return True for a whole number in that range. True and 1.0 are not whole numbers."""
    if type(value) is int:
        return least <= value <= most
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_whole(what: str, value: Any, least: int = 0, most: int = WHOLE_MAX, hint: str = "") -> int:
    """Check a whole number from `least` to `most`."""
    if not is_whole(value, least, most):
        raise UsageError(f"{what} is {clipped(value)}: give a whole number from {least:,} to {most:,}{hint}")
    return int(value)


def check_attempts(what: str, attempts: Any) -> int:
    """Check a number of attempts, at least one."""
    return check_whole(what, attempts, 1, hint="; the first execution counts")


def check_priority(priority: Any) -> int:
    """Check a priority from 0 to 999; lower goes first."""
    if not is_whole(priority, 0, 999):
        raise UsageError(f"priority {clipped(priority)}: a whole number from 0 to 999, lower goes first")
    return int(priority)


def check_limit(limit: Any, least: int = 0) -> int:
    """Check the number of rows that a list or a chore handles at once."""
    return check_whole("limit", limit, least)


def check_number(what: str, value: Any, least: float, most: float) -> float:
    """Check a number from `least` to `most`; text and True are refused."""
    number = _number(value)
    if number is None or not least <= number <= most:
        raise UsageError(f"{what} is {clipped(value)}: give a number from {least:,} to {most:,}")
    return number


def check_cost(cost: Any) -> int:
    """Check a cost and return it in the units of the stores."""
    number = _number(cost)
    if number is None or not 0 <= number <= COST_MAX:
        raise UsageError(f"cost is {clipped(cost)}: give a number from 0 to {COST_MAX:,}")
    return round(number * COST_UNIT)


def check_budget(what: str, budget: Any) -> int:
    """Check the cost at which a run pauses, above 0, and return it in the units of the stores."""
    number = _number(budget)
    if number is None or not 0 < number <= COST_MAX:
        raise UsageError(f"{what}={clipped(budget)}: give a cost above 0, at most {COST_MAX:,}")
    return max(1, round(number * COST_UNIT))


def _number(value: Any) -> float | None:
    """Return the value as a float; None when it is no number, NaN, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return None if math.isnan(number) else number


def to_seconds(value: Seconds, what: str = "") -> float:
    """Return a duration as a number of seconds; it may be negative or infinite."""
    try:
        text = isinstance(value, bool | str | bytes)
        total = value.total_seconds() if isinstance(value, timedelta) else float("x" if text else value)
    except (TypeError, ValueError, OverflowError):
        where = f"{what} is {clipped(value)}, which" if what else clipped(value)
        wanted = "give a number of seconds, or a timedelta such as hf.minutes(5)"
        raise UsageError(f"{where} is not a duration: {wanted}") from None
    if math.isnan(total):
        where = f"{what} is NaN, which" if what else "NaN"
        raise UsageError(f"{where} is not a duration: give a number of seconds")
    return total


def check_duration(what: str, value: Seconds, hint: str = "") -> float:
    """Check a duration from 0 s to 1,000 years and return its seconds."""
    total = to_seconds(value, what)
    if not 0 <= total <= FOREVER_SECONDS:
        raise UsageError(f"{what} is {total:g} s: give a duration from 0 s to 1,000 years{hint}")
    return total


def check_positive(what: str, value: Seconds, hint: str = "") -> float:
    """Check a duration above 0 s and return its seconds."""
    total = to_seconds(value, what)
    if not 0 < total <= FOREVER_SECONDS:
        raise UsageError(f"{what} is {total:g} s: give more than 0 s, and at most 1,000 years{hint}")
    return total


def check_kept(what: str, kept: Seconds, of: str = "runs") -> float:
    """Check a retention time and return its seconds; `math.inf` means for ever."""
    total = to_seconds(kept, what)
    if total < 0 or FOREVER_SECONDS < total < math.inf:
        raise UsageError(
            f"{what} is {total:g} s, the time for which {of} are kept: give 0 to 1,000 years, or math.inf"
        )
    return total


def check_lease(lease: Seconds) -> float:
    """Check the lease of a worker: long enough to be renewed in time, at most a day."""
    total = to_seconds(lease, "lease")
    if total < LEASE_MIN_SECONDS:
        raise UsageError(f"lease is {total:g} s: give at least 0.5 s, because it must be renewed in time")
    if total > LEASE_MAX_SECONDS:
        raise UsageError(
            f"lease is {total:g} s: give at most one day, because runs of a dead worker wait that long"
        )
    return total


def check_units(what: str, duration: Seconds, units: dict[str, Any]) -> float:
    """Check a duration with further units, as in `sleep(hours=1)`, and return the seconds."""
    try:
        more = timedelta(**units).total_seconds() if units else 0.0
    except (TypeError, ValueError, OverflowError):
        said = ", ".join(f"{name}={clipped(value)}" for name, value in list(units.items())[:5])
        raise UsageError(f"{what}({said}) is not a duration: write seconds, or hours=1, days=2") from None
    return check_duration(what, to_seconds(duration, what) + more)


def check_datetime(what: str, at: Any) -> Instant:
    """Check a datetime with a zone and return it as stores keep it."""
    if not isinstance(at, datetime):
        right = "a datetime with a zone, as in datetime.now(UTC) + hf.hours(1)"
        raise UsageError(f"{what} {clipped(at)}: {right}")
    if at.utcoffset() is None:
        raise UsageError(
            f"{what} {clipped(at)} has no time zone: give one, as in datetime(2030, 1, 1, tzinfo=UTC)"
        )
    try:
        return (at.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    except OverflowError:
        raise UsageError(f"{what} {clipped(at)}: give a time in the years 1 to 9999 of UTC") from None


def check_instant(what: str, at: Any) -> Instant:
    """Check an instant of a record: microseconds that a datetime can show."""
    if not is_whole(at, EARLIEST, LATEST):
        raise UsageError(
            f"{what} {clipped(at)}: give microseconds since 1970, for a time in the years 1 to 9999"
        )
    return int(at)


def check_type(type_: Any) -> str:
    """Check a workflow type: domain.action.vN, at most 255 characters."""
    said = exact_text(type_)
    if not isinstance(said, str) or len(said) > NAME_MAX or not _TYPE.fullmatch(said):
        raise BadType(
            f"{clipped(type_)} is not a workflow type: write domain.action.vN with letters, digits, _ and -, "
            f"for example {_suggestion(type_)!r}{_too_long(type_)}"
        )
    return said


def check_bare(name: Any) -> str:
    """Check a type, or a type without its version, which stands for all versions."""
    said = exact_text(name)
    return said if isinstance(said, str) and is_bare(said) else check_type(name)


def check_startable(name: Any) -> str:
    """Check a type, or a type without its version, which stands for the newest version."""
    said = exact_text(name)
    bare = isinstance(said, str) and is_bare(said) and not _VERSION.fullmatch(said.rpartition(".")[2])
    return said if bare else check_type(name)


def is_type(name: object) -> bool:
    """Return True for a workflow type."""
    return isinstance(name, str) and len(name) <= NAME_MAX and _TYPE.fullmatch(name) is not None


def is_bare(name: object) -> bool:
    """Return True for a workflow type, with or without its version."""
    return isinstance(name, str) and len(name) <= NAME_MAX and _NAME.fullmatch(name) is not None


def _suggestion(wrong: object) -> str:
    said = wrong if isinstance(wrong, str) and len(wrong) <= CLIPPED_MAX else ""
    if "//" in said:
        return "shop.order.v1"  # a URL may hold a password
    words = [
        word for word in re.split(r"[^A-Za-z0-9_-]+", said) if word and not re.fullmatch(r"v[0-9]+", word)
    ]
    if len(words) < 2:
        words = ["shop", *(words or ["order"])]
    return ".".join(words) + ".v1"


def _too_long(text: object) -> str:
    return f", at most {NAME_MAX} characters" if isinstance(text, str) and len(text) > NAME_MAX else ""


def check_patterns(patterns: Any) -> tuple[str, ...]:
    """Check patterns of types, tenants or keys; `%` at the end matches any rest."""
    return tuple(_pattern(one) for one in check_list("patterns", patterns))


def _pattern(pattern: Any) -> str:
    said = check_name("pattern", pattern)
    check_percent("pattern", said)
    return said


def check_percent(what: str, text: str) -> None:
    """Refuse a pattern with `%` before its end: it would match nothing."""
    if "%" in text[:-1]:
        raise UsageError(f"{what} {clipped(text)}: % is allowed only at the end, as in 'billing.%'")


def check_list(what: str, values: Any) -> list[Any]:
    """Check a list or another iterable; a single text is refused."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise UsageError(f"{what} is {clipped(values)}: give a list, as in [{clipped(values)}]")
    return list(values)


def check_words(what: str, kind: type[Word], values: Any) -> tuple[Word, ...]:
    """Check a list of members of an enum. The text of a member counts as the member."""
    found = check_list(what, values)
    try:
        return tuple([kind(one) for one in found])
    except ValueError:
        raise UsageError(f"{what} is {clipped(values)}: give some of {', '.join(kind)}") from None


def check_names(what: str, names: Any) -> tuple[str, ...]:
    """Check several names, such as tenants or types."""
    return tuple(check_name(what, one) for one in check_list(f"{what}s", names))


def check_topic(topic: Any) -> str:
    """Check a topic: 1 to 512 characters, without NUL."""
    said = _text("topic", topic)
    if not said or len(said) > TOPIC_MAX or not is_storable(said):
        raise UsageError(f"topic {said[:40]!r}: 1 to {TOPIC_MAX} characters of text, without NUL")
    return said


def check_name(what: str, name: Any) -> str:
    """Check a key, tenant, worker or event id: 1 to 255 characters, without NUL or U+001F."""
    if type(name) is str and name.isascii() and name.isprintable() and 0 < len(name) <= NAME_MAX:
        return name  # almost every name: no control character can be in it
    said = _text(what, name)
    if not said or len(said) > NAME_MAX or SEPARATOR in said or not is_storable(said):
        raise UsageError(f"{what} {said[:40]!r}: 1 to {NAME_MAX} characters of text, without NUL or U+001F")
    return said


def check_tenant(tenant: Any) -> str:
    """Check a tenant: a name of at most 512 bytes."""
    said = check_name("tenant", tenant)
    if said == ALL_TENANTS:
        raise UsageError("tenant '*' means all tenants where an operator asks: use another name")
    if not said.isascii() and len(said.encode()) > TENANT_BYTES:
        raise UsageError(f"tenant {said[:40]!r}: give a name of at most {TENANT_BYTES} bytes in UTF-8")
    return said


def check_text(what: str, text: Any, most: int = TEXT_MAX) -> str:
    """Check free text of a person, which may be empty: text that every store can keep."""
    said = _text(what, text)
    if len(said) > most or not is_storable(said):
        raise UsageError(f"{what} {clipped(said)}: text of at most {most:,} characters, without NUL")
    return said


def check_sought(**sought: Any) -> list[Any]:
    """Check the texts of a search and return them: each is None, or text that a store could hold."""
    return [None if text is None else check_text(what, text) for what, text in sought.items()]


def check_by(by: Any) -> str:
    """Check the name of the actor, for the trail; it may be empty."""
    return check_text("by", by)


def exact_text(value: Any) -> Any:
    """Convert a subclass of `str`, such as Markup, to `str`: drivers refuse subclasses. Return other values
    unchanged.
    """
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def _text(what: str, value: Any) -> str:
    said = exact_text(value)
    if isinstance(said, str):
        return said
    raise UsageError(f"{what} {clipped(value)}{_which(value)}: give text")


def _which(value: Any) -> str:
    """The type of a value that is no text, for an error message."""
    kind = type(value).__name__
    known = isinstance(value, str) or value is None
    return "" if known else f" is {'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def is_storable(text: str) -> bool:
    """Return True for text that every store can keep."""
    return _UNSTORABLE.search(text) is None


def check_labels(labels: Any) -> dict[str, str]:
    """Check labels: a dict of text to text."""
    if not isinstance(labels, dict) or not all(
        isinstance(one, str) for pair in labels.items() for one in pair
    ):
        raise UsageError(
            f"labels {clipped(labels)}: give a dict of texts, as in {{'team': 'billing'}}{_odd(labels)}"
        )
    return {exact_text(name): exact_text(label) for name, label in labels.items()}


def _odd(labels: Any) -> str:
    parts = [one for pair in labels.items() for one in pair] if isinstance(labels, dict) else []
    return next((f"; {clipped(one)}{_which(one)}" for one in parts if not isinstance(one, str)), "")


def check_id(run: UUID | str) -> UUID:
    """Check a run's id, given as a UUID or as text."""
    if isinstance(run, UUID):
        return run
    try:
        return UUID(run)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{clipped(run)} is not a run id: ids look like 0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
        ) from None
