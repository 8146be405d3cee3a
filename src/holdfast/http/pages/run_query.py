"""The filter of runs as people type it: one line such as `status=failed type=shop.% created-since=2h`.

The fields of the page and the line are two forms of the same filter. A value with spaces is in quotes. A time
is `2h` or `3d` (before now), a date, or a time with its zone. A word that is a status needs no name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.clipped import clipped
from holdfast.http.problems import Code, Refusal
from holdfast.lifecycle import ALIASES, Status, StepKind, spoken_status

LISTS = ("status", "label", "error")  # fields that may be repeated
FLAGS = ("roots", "deleted")
TIMES = tuple(f"{what}_{end}" for what in ("created", "finished", "updated") for end in ("since", "until"))
NAMES = (*LISTS, "type", "waiting_on", "key", "parent", "contains", *TIMES, *FLAGS)
QUERY_MAX = 2_000  # characters
_OTHER_NAMES = {"since": "created_since", "until": "created_until", "started_since": "created_since"}
_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

Fields = dict[str, Any]  # a list for LISTS, True for FLAGS, a text for the others


def read_line(line: str) -> Fields:
    """Return the fields of a typed line."""
    if len(line) > QUERY_MAX:
        raise _refusal(f"the query may have {QUERY_MAX:,} characters")
    try:
        words = shlex.split(line)
    except ValueError:
        raise _refusal("a quote is not closed") from None
    fields: Fields = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("-", "_").lower()
        name = _OTHER_NAMES.get(name, name)
        if not equals and _is_status(name):
            fields.setdefault("status", []).append(name)
        elif name in FLAGS and value in {"", "true"}:
            fields[name] = True
        elif name not in NAMES or not equals:
            known = ", ".join(one.replace("_", "-") for one in NAMES)
            raise _refusal(f"{clipped(word)} is no filter: write name=value; the names are {known}")
        elif not value:
            raise _refusal(f"{name.replace('_', '-')} has no value")
        elif name in LISTS:
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise _refusal(f"{name.replace('_', '-')} is given twice")
        else:
            fields[name] = value
    return fields


def written_line(fields: Mapping[str, Any]) -> str:
    """Return fields as one line."""
    words = []
    for name in NAMES:
        value, shown = fields.get(name), name.replace("_", "-")
        if value is True:
            words.append(shown)
        elif value:
            values = map(spoken_status, value) if name == "status" else value if name in LISTS else [value]
            words += [f"{shown}={shlex.quote(str(one))}" for one in values]
    return " ".join(words)


def asked(fields: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the query of the operation `list`: times as instants."""
    return {**fields, **{name: at_time(name, fields[name], now) for name in TIMES if fields.get(name)}}


def bulk_where(fields: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the filter of a bulk operation. It takes no text in values, and no deleted runs."""
    for name in ("contains", "deleted"):
        if fields.get(name):
            raise _refusal(f"a bulk operation does not take the filter {name}")
    given = asked(fields, now)
    words = [one.lower().replace("-", "_") for one in given.pop("status", [])]
    odd = next((one for one in words if not _is_status(one)), None)
    if odd is not None:
        raise _refusal(f"{clipped(odd)} is no status")
    labels = dict(one.split("=", 1) if "=" in one else (one, None) for one in given.pop("label", []))
    where = {**given, "statuses": [ALIASES.get(one, one) for one in words], "labels": labels}
    if "waiting_approval" in words:
        where.setdefault("waiting_on", StepKind.APPROVAL)
    return {name: value for name, value in where.items() if value}


def at_time(name: str, text: str, now: datetime) -> str:
    """Return an instant as the API takes it: `2h` before now, a date, or a time with its zone."""
    try:
        if found := _AGO.fullmatch(text.strip()):
            at = now - timedelta(seconds=float(found[1]) * _UNITS[found[2]])
        else:
            at = datetime.fromisoformat(text.strip())
            if at.tzinfo is None:  # a date, or what a field for times sends
                at = at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise _refusal(
            f"{name.replace('_', '-')}={clipped(text)} is no time: write 2h or 3d (ago), 2026-01-31 or "
            "2026-01-31T10:00Z"
        ) from None
    return at.isoformat()


def _is_status(word: str) -> bool:
    return word in ALIASES or word in set(Status)


def _refusal(detail: str) -> Refusal:
    return Refusal(Code.BAD_VALUE, detail)
