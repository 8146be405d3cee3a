"""What people do to a run: the verbs of one run each, as jobs for the writer."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.errors import Conflict
from holdfast.records import ApprovalRequest, Decided, Run, Step, Tenant, tenant_name
from holdfast.store import SLICE

from . import cleaning, gates, moves, plans

if TYPE_CHECKING:
    from .writer import Work

T = TypeVar("T")


class People:
    """A part of the store. What a verb has promised to others is carried out right after its own commit."""

    if TYPE_CHECKING:

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        who = (tenant_name(tenant), by)
        shown = await self._write(
            lambda db, now: moves.cancel(db, now, run, who, with_children=children), news=True
        )
        await self._carry_out()
        return shown

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._write(
            lambda db, now: moves.pause(db, now, run, tenant_name(tenant), by), news=True
        )

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._write(
            lambda db, now: moves.resume(db, now, run, tenant_name(tenant), by), news=True
        )

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        who = (tenant_name(tenant), by)
        shown = await self._write(
            lambda db, now: moves.rewind(db, now, run, step, who, with_children=children), news=True
        )
        await self._carry_out()
        return shown

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        shown = await self._write(
            lambda db, now: moves.retry_run(db, now, run, tenant_name(tenant), by), news=True
        )
        await self._carry_out()
        return shown

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        return await self._write(
            lambda db, now: plans.append_step(db, now, run, name, max_attempts, tenant_name(tenant)),
            news=True,
        )

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._write(
            lambda db, now: cleaning.delete(db, now, run, tenant_name(tenant), by), news=True
        )

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._write(
            lambda db, now: cleaning.restore(db, now, run, tenant_name(tenant), by), news=True
        )

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        return self._read(gates.approvals, tenant_name(tenant), limit, after)

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
        ruling = gates.Ruling(step, approved, by, comment, digest)
        answer = await self._write(
            lambda db, now: gates.decide(db, now, run, tenant_name(tenant), ruling), news=True
        )
        await self._carry_out()
        if isinstance(answer, Conflict):
            raise answer
        return answer
