"""Counts, rates and the scaling signal as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.records import SECOND, Backlog, Counted, Counts, DueRuns, Instant, Rate, Scale, moment

from .shapes import Shape


class CountsData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The runs that there are, and all that has happened so far.

    by_type: by type and status. totals: by type and what happened. more: there are too many types to list;
    the rest are under the type "".
    """

    now: datetime
    by_status: dict[str, int]
    by_type: dict[str, dict[str, int]]
    totals: dict[str, dict[str, int]]
    more: bool


class RateData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """How often something happened to runs of a type in one minute. minute: its start."""

    minute: datetime
    type: str
    what: Counted
    number: int


class RatesData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Numbers by minute, type and what happened. more: there may be later ones, from the last minute on."""

    items: tuple[RateData, ...]
    more: bool


class DueRunsData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The due runs of one type and tenant. more: there are more of them than `due`."""

    type: str
    tenant: str
    due: int
    more: bool
    oldest_due_at: datetime | None
    oldest_due_seconds: float
    leased: int


class ScaleData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The work that there is now: the numbers of an autoscaler, and their parts by type and tenant.

    due: runs that wait for a worker. leased: runs that are executed. load: both, so load divided by the slots
    of a worker is the number of workers. oldest_due_seconds: how long the oldest due run has waited; 0 if
    none is due. more: some due runs are not counted. more_types: some types and tenants are left out.
    """

    now: datetime
    due: int
    leased: int
    load: int
    oldest_due_seconds: float
    more: bool
    more_types: bool
    items: tuple[DueRunsData, ...]


class BacklogData(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The messages that one sink has not received yet. lag_seconds: the age of the oldest pending one."""

    sink: str
    pending: int
    dead: int
    oldest_at: datetime | None
    lag_seconds: float


def counts_data(counts: Counts) -> CountsData:
    """The counts of a store, or of one tenant."""
    return CountsData(
        now=moment(counts.now),
        by_status=counts.by_status(),
        by_type=counts.by_type,
        totals=counts.totals,
        more=counts.more,
    )


def rate_data(rate: Rate) -> RateData:
    """One number of a minute."""
    return RateData(minute=moment(rate.minute), type=rate.type, what=rate.what, number=rate.number)


def scale_data(scale: Scale) -> ScaleData:
    """The scaling signal, with its sums."""
    items = tuple(_due_runs_data(one, scale.now) for one in scale.items)
    due, leased = sum(one.due for one in items), sum(one.leased for one in items)
    return ScaleData(
        now=moment(scale.now),
        due=due,
        leased=leased,
        load=due + leased,
        oldest_due_seconds=max((one.oldest_due_seconds for one in items), default=0.0),
        more=scale.more or any(one.more for one in items),
        more_types=scale.more,
        items=items,
    )


def _due_runs_data(one: DueRuns, now: Instant) -> DueRunsData:
    return DueRunsData(
        type=one.type,
        tenant=one.tenant,
        due=one.due,
        more=one.more,
        oldest_due_at=None if one.oldest_due_at is None else moment(one.oldest_due_at),
        oldest_due_seconds=_age(one.oldest_due_at, now),
        leased=one.leased,
    )


def backlog_data(backlog: Sequence[Backlog], now: Instant) -> tuple[BacklogData, ...]:
    """The messages that are not delivered, by sink."""
    return tuple(
        BacklogData(
            sink=one.sink,
            pending=one.pending,
            dead=one.dead,
            oldest_at=None if one.oldest_at is None else moment(one.oldest_at),
            lag_seconds=_age(one.oldest_at, now),
        )
        for one in backlog
    )


def _age(since: Instant | None, now: Instant) -> float:
    return 0.0 if since is None else max(0, now - since) / SECOND
