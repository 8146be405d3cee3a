"""The workers that have registered at this server: bounded for each tenant, because names cost nothing.

A worker that was killed does not say that it leaves, and each restart has another name. So names that were
not seen for long make room for new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain

from holdfast.contract import LIVE_SECONDS, Store
from holdfast.http.problems import Code, Refusal
from holdfast.records import Presence
from holdfast.world import World

WORKER_BYTES = 4 * 1024  # what a worker counts at least
TENANT_BYTES = 2_500 * WORKER_BYTES  # of all workers of one tenant


class _Known:
    """The workers of one tenant: when each was seen last, and its bytes; the one seen longest ago first."""

    def __init__(self) -> None:
        self.workers: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.bytes = 0

    def add(self, worker: str, seen_at: float, size: int) -> None:
        self.drop(worker)
        self.workers[worker] = seen_at, size
        self.bytes += size

    def drop(self, worker: str) -> None:
        self.bytes -= self.workers.pop(worker, (0.0, 0))[1]

    def with_one(self, worker: str, size: int) -> int:
        """Return the bytes of all with this worker of this size."""
        return self.bytes - self.workers.get(worker, (0.0, 0))[1] + size

    def silent(self, since: float) -> str | None:
        """Return the worker that was seen longest ago, if that is before `since`."""
        worker, (seen_at, _) = next(iter(self.workers.items()), ("", (since, 0)))
        return worker if seen_at < since else None


class Presences:
    """Writes the presence of workers to the store. tenant: that of the key."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._known: dict[str, _Known] = {}

    async def present(self, tenant: str, presence: Presence) -> None:
        """Show that a worker is there. A Refusal, when its tenant has too many of them."""
        known, now = self._known.setdefault(tenant, _Known()), self._world.monotonic()
        size = max(WORKER_BYTES, _bytes_of(presence))
        # A worker that is refused stays counted: the store still has it.
        while known.with_one(presence.worker, size) > TENANT_BYTES:
            if (gone := known.silent(now - LIVE_SECONDS)) is None:
                detail = f"the tenant has {len(known.workers):,} workers at this server, with all their types"
                raise Refusal(Code.STREAMS_LIMIT, detail, retry_after_seconds=5)
            known.drop(gone)
            await self._store.absent(gone)
        known.add(presence.worker, now, size)
        await self._store.present(presence)

    async def absent(self, tenant: str, worker: str) -> None:
        """Show that a worker has gone."""
        if (known := self._known.get(tenant)) is not None:
            known.drop(worker)
        await self._store.absent(worker)


def _bytes_of(presence: Presence) -> int:
    lacking = presence.lacking
    return sum(map(len, chain(presence.types, presence.patterns, lacking, *lacking.values())))
