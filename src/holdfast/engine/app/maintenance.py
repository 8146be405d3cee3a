"""The verbs of an operator on the whole store: purge expired runs, and the check-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.arguments import Seconds, check_kept
from holdfast.contract import DELETED_SECONDS, TTL_SECONDS, Store
from holdfast.engine.explain.doctor import Report, examine
from holdfast.records import Miscount, Presence, Purged, Stats, moment

from .transfer import TransferVerbs


class MaintenanceVerbs(TransferVerbs):
    """The verbs of an operator; a part of `StoreClient`."""

    store: Store
    ttl_seconds = TTL_SECONDS

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

    async def purge(
        self,
        older_than: Seconds | None = None,
        deleted_after: Seconds = DELETED_SECONDS,
        progress: Callable[[Purged], None] | None = None,
    ) -> Purged:
        """Remove expired runs for good, slice by slice; `progress` is called with the sum after each slice.

        A finished run expires by its own ttl, else `older_than` (None: the app's ttl) after its end.
        """
        ttl = self.ttl_seconds if older_than is None else check_kept("older_than", older_than)
        deleted, done = check_kept("deleted_after", deleted_after), Purged()
        await self._opened()
        while (one := await self.store.purge(ttl, deleted)).total:
            done = Purged(
                runs=done.runs + one.runs,
                events=done.events + one.events,
                workers=done.workers + one.workers,
                claims=done.claims + one.claims,
                audit=done.audit + one.audit,
                api_keys=done.api_keys + one.api_keys,
                sessions=done.sessions + one.sessions,
            )
            if progress is not None:
                progress(done)
        return done

    async def now(self) -> datetime:
        """Return the time of the store's clock, which counts for all times of runs."""
        await self._opened()
        return moment(await self.store.now())

    async def stats(self) -> Stats:
        """Return an overview of the store: runs by status, live workers, runs that no worker can take."""
        await self._opened()
        return await self.store.stats()

    async def workers(self) -> Sequence[Presence]:
        """Return the live workers: what they run, and how much."""
        return (await self.stats()).workers

    async def doctor(self) -> Report:
        """Check the store and its runs. The report has a `level`, and findings that say how to mend them."""
        await self._opened()
        return await examine(self.store)

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        """Compare the kept counts with all runs, which takes time, and return the differences. repair:
        correct the counts too.
        """
        await self._opened()
        return await self.store.recount(repair=repair)
