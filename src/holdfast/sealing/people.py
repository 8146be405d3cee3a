"""What people do to runs, behind the codec: what comes back is opened."""

from __future__ import annotations

import builtins
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.contract import Store
from holdfast.records import ApprovalRequest, Decided, Run, Step, Tenant
from holdfast.records.sizes import request_bytes

from .records import Records


class People:
    """The verbs of people; a part of `Sealed`."""

    inner: Store
    _records: Records

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        return self._records.run(await self.inner.cancel(run, tenant, by, children=children))

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._records.run(await self.inner.pause(run, tenant, by))

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._records.run(await self.inner.resume(run, tenant, by))

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        return self._records.run(await self.inner.rewind(run, step, tenant, by, children=children))

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._records.run(await self.inner.retry_run(run, tenant, by))

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        return await self.inner.append_step(run, name, tenant, max_attempts)

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._records.run(await self.inner.delete(run, tenant, by))

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return self._records.run(await self.inner.restore(run, tenant, by))

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        found = await self.inner.approvals(tenant, limit, after)
        return page(map(self._records.approval, found), request_bytes, limit)

    async def decide(
        self,
        run: UUID,
        step: str | None = None,
        *,
        approved: bool,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
        tenant: Tenant,
    ) -> Decided:
        decided = await self.inner.decide(
            run, step, approved=approved, by=by, comment=comment, digest=digest, tenant=tenant
        )
        return msgspec.structs.replace(decided, run=self._records.run(decided.run))
