"""What people do to a run, as jobs for the writer; and the gates that wait for them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.contract import SLICE
from holdfast.machine import chains
from holdfast.machine.rows import Owes
from holdfast.records import ApprovalRequest, Instant, Run, Tenant, tenant_name
from holdfast.stores.people import Move, People

from . import gates
from .database import Database
from .view import SqliteView

if TYPE_CHECKING:
    from .writer import Work

T = TypeVar("T")


class PeopleRoom(People):
    """A part of the store."""

    if TYPE_CHECKING:

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def _moved(self, run: UUID, move: Move[T], *, promises: int = 0) -> tuple[T, Run]:
        def work(db: Database, now: Instant) -> tuple[T, Run, int]:
            view = SqliteView(db, now)
            answer = move(view)
            view.save()
            named = view.run(run)
            assert named is not None
            row, chain = chains.present_of(view, named), chains.first_of(view, named)
            return answer, view.shown_run(row), row.owes | chain.owes & Owes.CHAIN

        answer, seen, owes = await self._write(work, news=True)
        if owes & promises:
            await self._carry_out()
        return answer, seen

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        return self._read(gates.approvals, tenant_name(tenant), limit, after)
