"""Answers of `counts`, made of counted rows: how types are left out when there are too many."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from holdfast.contract import COUNTED_TYPES_MAX
from holdfast.records import SECOND, Counts, Instant

MINUTE = 60 * SECOND
REST = ""  # the type under which the types are counted that do not fit

Row = tuple[str, str, int]  # a type, a status or a happening, and a number


def minute_of(at: Instant) -> Instant:
    """Return the start of the minute of an instant."""
    return at - at % MINUTE


def counts_of(now: Instant, runs: Iterable[Row], happenings: Iterable[Row]) -> Counts:
    """Return the answer. If there are too many types, those with the most runs are in it, and of the others
    those to which the most has happened.
    """
    by_type, totals = _by_type(runs), _by_type(happenings)
    types = sorted({*by_type, *totals})
    if len(types) <= COUNTED_TYPES_MAX:
        return Counts(now=now, by_type=by_type, totals=totals)
    sizes = {one: (sum(by_type.get(one, {}).values()), sum(totals.get(one, {}).values())) for one in types}
    kept = frozenset(sorted(types, key=lambda one: sizes[one], reverse=True)[:COUNTED_TYPES_MAX])
    return Counts(now=now, by_type=_cut(by_type, kept), totals=_cut(totals, kept), more=True)


def _by_type(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for kind, name, number in rows:
        if number:
            one = found.setdefault(kind, {})
            one[name] = one.get(name, 0) + number
    return found


def _cut(numbers: dict[str, dict[str, int]], kept: frozenset[str]) -> dict[str, dict[str, int]]:
    rows = ((kind if kind in kept else REST, one) for kind, one in numbers.items())
    return _by_type(chain.from_iterable(((kind, *pair) for pair in one.items()) for kind, one in rows))
