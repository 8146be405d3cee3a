"""trail, follow and follow_all in front of a store that sees only sealed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec.structs import replace

from holdfast.bounds import BATCH_BYTES, Quota, page
from holdfast.contract import Store
from holdfast.records import ANY, Followed, Instant, Tenant, TrailEntry, TrailPage
from holdfast.records.sizes import entry_bytes

from .records import Records, veiled


class SealedTrail:
    """The verbs of the trail; a part of `Sealed`. Compressed values grow when they are opened, so that an
    answer of them may have to end earlier."""

    inner: Store
    _records: Records

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> list[TrailEntry]:
        entries = await self.inner.trail(run, tenant, types, after, limit, between)
        return page(await self._opened_trail(entries, tenant), entry_bytes, limit)

    async def _opened_trail(self, entries: Sequence[TrailEntry], tenant: Tenant) -> Iterator[TrailEntry]:
        owners = {one: await self._tenant(one) if tenant is ANY else tenant for one in veiled(entries)}
        return (
            self._records.trail(entry, owners[entry.run]) if entry.run in owners else entry
            for entry in entries
        )

    async def follow(
        self, runs: Sequence[tuple[UUID, int]], tenant: Tenant, limit: int = 1000, bytes: int = BATCH_BYTES
    ) -> list[Followed]:
        found = await self.inner.follow(runs, tenant, limit, bytes)
        quota: Quota[TrailEntry] = Quota(entry_bytes, limit, bytes)
        return [self._followed(one, quota) if one.entries else one for one in found]

    def _followed(self, one: Followed, quota: Quota[TrailEntry]) -> Followed:
        is_sealed = bool(veiled(one.entries))
        opened = (self._records.trail(entry, one.tenant) if is_sealed else entry for entry in one.entries)
        entries, is_cut = quota.take(opened)
        return replace(one, entries=entries, more=one.more or is_cut)

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = BATCH_BYTES,
    ) -> TrailPage:
        found = await self.inner.follow_all(tenant, types, after, limit, bytes)
        quota: Quota[TrailEntry] = Quota(entry_bytes, limit, bytes)
        entries, is_cut = quota.take(await self._opened_trail(found.entries, tenant))
        if is_cut:
            return TrailPage(entries=entries, seq=entries[-1].seq, more=True)
        return replace(found, entries=entries)

    async def _tenant(self, run: UUID) -> str:
        """Return the tenant of a run. For a deleted run it is unknown, and its values stay sealed."""
        found = await self.inner.get(run, ANY)
        return "" if found is None else found.tenant
