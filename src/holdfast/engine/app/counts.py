"""The verbs that count: runs by type and status, happenings per minute, due runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.arguments import check_datetime, check_limit
from holdfast.contract import RATES_MAX, Store
from holdfast.records import SECOND, Backlog, Counts, Rate, Scale, Tenant

RATES_SECONDS = 3600  # how far back `rates` looks unless told otherwise


class CountVerbs:
    """The verbs that count; a part of `StoreClient`. They cost the same with a million runs as with few."""

    store: Store
    tenant: Tenant

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

    async def counts(self) -> Counts:
        """Return how many runs there are by type and status, and how much has happened so far, by type."""
        await self._opened()
        return await self.store.counts(self.tenant)

    async def rates(
        self, since: datetime | None = None, until: datetime | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        """Return how often runs were started, ended, retried and lost by their worker, by minute and type.

        since, until: the first and the last minute; by default the last hour. Minutes of the last two days
        are kept. At most `limit` numbers, at most 10,000: go on from the last minute that was returned, with
        a larger limit if all of them are of one minute.
        """
        first = None if since is None else check_datetime("since", since)
        last = None if until is None else check_datetime("until", until)
        most = min(check_limit(limit), RATES_MAX)
        await self._opened()
        if first is None:
            first = await self.store.now() - RATES_SECONDS * SECOND
        return await self.store.rates(self.tenant, first, last, most)

    async def scale(self) -> Scale:
        """Return the due runs and those that are executed now, by type and tenant: the signal to add or
        remove workers. Due runs are counted up to 10,000 of each type and tenant.
        """
        await self._opened()
        return await self.store.scale(self.tenant)

    async def backlog(self) -> Sequence[Backlog]:
        """Return the pending and dead messages of the outbox, by sink, of all tenants."""
        await self._opened()
        return await self.store.backlog()
