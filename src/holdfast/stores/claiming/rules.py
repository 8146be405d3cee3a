"""Registry entries and limits: which of them apply to a type, a tenant or a limit_key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.machine.durations import micros
from holdfast.records import SCOPES, SECOND, Hold, Instant, Limit, moment

PREFIX = "%"
# The cost of one claim for a tenant of weight 1. Whole numbers: with fractions shares would differ between
# stores.
_STRIDE = 1_000_000


class Entry(NamedTuple):
    """The registry entry of a type."""

    name: str
    runtime: str
    enabled: bool


class LimitRule(NamedTuple):
    """A limit as it is stored. Only limits of keys use `paused_until`."""

    scope: str
    name: str
    concurrency: int | None = None
    rate: int | None = None
    period: int | None = None  # microseconds
    weight: float | None = None
    paused_until: Instant | None = None


class Rules:
    """All registry entries and limits, indexed for lookups."""

    def __init__(self, entries: Iterable[Entry], limits: Iterable[LimitRule]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._rules = {(rule.scope, rule.name): rule for rule in limits}
        rules = self._rules.values()
        self._prefixes = {
            scope: sorted(
                (rule for rule in rules if rule.scope == scope and rule.name.endswith(PREFIX)),
                key=lambda rule: -len(rule.name),
            )
            for scope in SCOPES
        }
        self.weighs = any(rule.weight is not None for rule in rules)
        # Scopes in which a name can be full. Names of other scopes are never looked up.
        self.scopes = frozenset(rule.scope for rule in rules if _narrows(rule))

    def entry(self, type_: str) -> Entry | None:
        """Return the entry of the type itself, else that of its name without the version."""
        return self._entries.get(type_) or self._entries.get(type_.rpartition(".v")[0])

    def open_to(self, type_: str, runtime: str) -> bool:
        """Return True when the registry lets this runtime claim the type."""
        entry = self.entry(type_)
        return entry is None or (entry.enabled and entry.runtime == runtime)

    def holds(self, type_: str, runtime: str) -> Iterator[Hold]:
        """Yield the reasons why the registry does not let this runtime claim the type."""
        entry = self.entry(type_)
        if entry is not None and not entry.enabled:
            yield Hold(why="disabled", name=type_, rule=entry.name)
        if entry is not None and entry.runtime != runtime:
            yield Hold(why="runtime", name=type_, rule=entry.name, runtime=entry.runtime)

    def of(self, scope: str, name: str) -> Iterator[LimitRule]:
        """Yield the limits that apply to this name, the most specific first."""
        if (exact := self._rules.get((scope, name))) is not None:
            yield exact
        for rule in self._prefixes[scope]:
            if rule is not exact and name.startswith(rule.name[:-1]):
                yield rule

    def rate(self, scope: str, name: str) -> tuple[int | None, int | None]:
        """Return the number of claims and the period of the rate that applies to this name."""
        return next(
            ((rule.rate, rule.period) for rule in self.of(scope, name) if rule.rate is not None), (None, None)
        )

    def stride(self, tenant: str) -> int:
        """Return the cost of one claim for a tenant. More weight makes it smaller."""
        weight = next((rule.weight for rule in self.of("tenant", tenant) if rule.weight is not None), 1.0)
        return max(1, round(_STRIDE / weight))


def made_rule(
    scope: str, name: str, concurrency: int | None, rate: tuple[int, float] | None, weight: float | None
) -> LimitRule:
    """Return the stored form of a limit that a user sets."""
    count, seconds = rate if rate is not None else (None, None)
    return LimitRule(scope, name, concurrency, count, None if seconds is None else micros(seconds), weight)


def shown_limit(rule: LimitRule, now: Instant) -> Limit:
    """Return a limit as users see it, without a pause that is over."""
    until = rule.paused_until
    return Limit(
        scope=rule.scope,
        name=rule.name,
        concurrency=rule.concurrency,
        rate=rule.rate,
        period_seconds=None if rule.period is None else rule.period / SECOND,
        weight=rule.weight,
        paused_until=None if until is None or until <= now else moment(until),
    )


def shown_limits(rules: Iterable[LimitRule], now: Instant) -> list[Limit]:
    """Return the limits that still limit something, by scope and name."""
    shown = [shown_limit(rule, now) for rule in sorted(rules, key=lambda rule: rule[:2])]
    return [one for one in shown if one != Limit(scope=one.scope, name=one.name)]


def _narrows(rule: LimitRule) -> bool:
    return rule.concurrency is not None or rule.rate is not None or rule.paused_until is not None
