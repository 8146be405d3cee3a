"""The verbs that count: runs by type and status, happenings per minute, due runs, messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.arguments import check_limit
from holdfast.contract import RATES_MAX
from holdfast.records import Backlog, Counts, DueRuns, Rate, Scale, instant
from holdfast.shown.counts import BacklogData, CountsData, DueRunsData, RatesData, ScaleData

from .base import Base, times


class BacklogItems(msgspec.Struct, frozen=True):
    """Messages that are not delivered, by sink."""

    items: tuple[BacklogData, ...]


class CountVerbs(Base):
    """The verbs that count; a part of `Client`."""

    async def counts(self) -> Counts:
        """Return how many runs there are by type and status, and how much has happened so far, by type."""
        return counts_of(await self._ask("counts", CountsData, query=self._of_run()))

    async def rates(
        self, since: datetime | None = None, until: datetime | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        """Return how often runs were started, ended, retried and lost by their worker, by minute and type,
        as `App.rates` does.
        """
        most = min(check_limit(limit), RATES_MAX)
        if not most:
            return []
        query = [*self._of_run(), *times(since=since, until=until), ("limit", str(most))]
        found = await self._ask("rates", RatesData, query=query)
        return [
            Rate(minute=instant(one.minute), type=one.type, what=one.what, number=one.number)
            for one in found.items
        ]

    async def scale(self) -> Scale:
        """Return the due runs and those that are executed now, by type and tenant, as `App.scale` does."""
        return scale_of(await self._ask("scale", ScaleData, query=self._of_run()))

    async def backlog(self) -> Sequence[Backlog]:
        """Return the pending and dead messages of the outbox, by sink. Needs a key of an operator."""
        return [backlog_of(one) for one in (await self._ask("backlog", BacklogItems)).items]


def counts_of(data: CountsData) -> Counts:
    """The counts of a store, or of one tenant."""
    return Counts(now=instant(data.now), by_type=data.by_type, totals=data.totals, more=data.more)


def scale_of(data: ScaleData) -> Scale:
    """The scaling signal, without its sums."""
    items = tuple(_due_runs_of(one) for one in data.items)
    return Scale(now=instant(data.now), items=items, more=data.more_types)


def _due_runs_of(data: DueRunsData) -> DueRuns:
    return DueRuns(
        type=data.type,
        tenant=data.tenant,
        due=data.due,
        more=data.more,
        oldest_due_at=None if data.oldest_due_at is None else instant(data.oldest_due_at),
        leased=data.leased,
    )


def backlog_of(data: BacklogData) -> Backlog:
    """The messages that one sink has not received yet."""
    oldest = None if data.oldest_at is None else instant(data.oldest_at)
    return Backlog(sink=data.sink, pending=data.pending, dead=data.dead, oldest_at=oldest)
