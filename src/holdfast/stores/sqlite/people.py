"""What people do to a run: the verbs of one run each, as jobs for the writer."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.contract import SLICE
from holdfast.errors import Conflict
from holdfast.machine import people, plans
from holdfast.machine.deciding import Ruling
from holdfast.records import ApprovalRequest, Decided, Instant, Run, Step, Tenant, tenant_name

from . import gates
from .database import Database
from .held import RunRow
from .view import SqliteView

if TYPE_CHECKING:
    from .writer import Work

T = TypeVar("T")


class People:
    """A part of the store. What a verb has promised to others is carried out right after its own commit."""

    if TYPE_CHECKING:

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def _changed(self, move: Callable[[SqliteView], RunRow], *, promises: bool = False) -> Run:
        def work(db: Database, now: Instant) -> tuple[Run, int]:
            view = SqliteView(db, now)
            run = move(view)
            view.save()
            return view.shown_run(run), run.owes

        shown, owes = await self._write(work, news=True)
        if promises and owes:
            await self._carry_out()
        return shown

    async def cancel(self, run: UUID, tenant: Tenant, by: str = "", *, children: bool = True) -> Run:
        return await self._changed(
            lambda view: people.cancel(view, run, tenant_name(tenant), by, children=children), promises=True
        )

    async def pause(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(lambda view: people.pause(view, run, tenant_name(tenant), by))

    async def resume(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(lambda view: people.resume(view, run, tenant_name(tenant), by))

    async def rewind(
        self, run: UUID, step: str, tenant: Tenant, by: str = "", *, children: bool = True
    ) -> Run:
        return await self._changed(
            lambda view: people.rewind(view, run, step, tenant_name(tenant), by, children=children),
            promises=True,
        )

    async def retry_run(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(
            lambda view: people.retry_run(view, run, tenant_name(tenant), by), promises=True
        )

    async def delete(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(lambda view: people.delete(view, run, tenant_name(tenant), by))

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        return await self._changed(lambda view: people.restore(view, run, tenant_name(tenant), by))

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        def work(db: Database, now: Instant) -> Step:
            view = SqliteView(db, now)
            step = plans.append_step(view, people.found(view, run, tenant_name(tenant)), name, max_attempts)
            view.save()
            return step

        return await self._write(work, news=True)

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
        ruling = Ruling(step, approved, by, comment, digest)
        answer, owes = await self._write(
            lambda db, now: gates.decide(db, now, run, tenant_name(tenant), ruling), news=True
        )
        if owes:
            await self._carry_out()
        if isinstance(answer, Conflict):
            raise answer
        return answer
