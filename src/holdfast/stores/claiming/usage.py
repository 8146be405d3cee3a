"""The usage of limits: claims that a rate counts, and turns of tenants. Memory and Redis keep such rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.records import Instant, Registration, moment

from .capacity import Capacity, Used
from .rules import Entry, LimitRule, Rules
from .shares import Shares, kept_since


class Uses(NamedTuple):
    """Claims that a rate counts: their time, their number, and when they stop counting."""

    at: Instant
    taken: int
    gone_at: Instant


class Book(NamedTuple):
    """The turns of one kind of worker: the place served last, the places of waiting tenants, and the last
    use."""

    passed: int
    places: dict[str, int]
    used_at: Instant


def rules_of(registry: Iterable[Registration], limits: Iterable[LimitRule]) -> Rules:
    """Return the rules that the settings make."""
    return Rules((Entry(one.workflow_name, one.runtime, one.is_enabled) for one in registry), limits)


def spent(uses: Sequence[Uses], rate: int, period: int, now: Instant) -> Used:
    """Return how much of a rate is used, and when there is room again."""
    # A claim more than one period in the future was made with a wrong clock.
    counted = [one for one in uses if now - period < one.at <= now + period]
    left = count = sum(one.taken for one in counted)
    for one in counted:
        left -= one.taken
        if left < rate:
            return Used(count, partial(int, one.at + period))
    return Used(count, partial(int, now))


def with_claims(uses: Sequence[Uses], capacity: Capacity, now: Instant) -> list[Uses]:
    """Return the claims of a rate with new ones: never earlier than the last one, even if the clock was
    turned back."""
    period = capacity.period or 0
    known = [one for one in uses if one.at <= now + period]
    at = max([now, *(one.at for one in known)])
    return [*known, Uses(at, capacity.taken, at + period)]


def counted(uses: Iterable[Uses], now: Instant) -> list[Uses]:
    """Return the claims that a rate may still count."""
    return [one for one in uses if one.gone_at > now]


def shares_of(book: Book | None, rules: Rules, due: Iterable[str], now: Instant) -> Shares:
    """Return the shares of the waiting tenants. A book that was not used for long is void."""
    if book is None or book.used_at <= kept_since(now):
        return Shares(rules, 0, {}, due)
    return Shares(rules, book.passed, book.places, due)


def registered(known: Registration | None, name: str, given: Mapping[str, Any], now: Instant) -> Registration:
    """Return an entry of the registry with what is given; None leaves a field as it is."""
    at = moment(now)
    known = known or Registration(workflow_name=name, created_at=at, updated_at=at)
    changed = {field: value for field, value in given.items() if value is not None}
    return msgspec.structs.replace(known, updated_at=at, **changed)


def unpaused(limits: Iterable[LimitRule], now: Instant) -> list[LimitRule]:
    """Return the limits whose pause is over, without it."""
    over = [rule for rule in limits if rule.paused_until is not None and rule.paused_until <= now]
    return [rule._replace(paused_until=None) for rule in over]
