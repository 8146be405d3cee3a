"""The verbs of `stores/people.py` on SQLite, each a job for the writer; and the list of open approvals."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast.bounds import page
from holdfast.contract import SLICE
from holdfast.machine import chains
from holdfast.machine.rows import Owes
from holdfast.records import ApprovalRequest, Instant, Run, Tenant, moment, tenant_name
from holdfast.records.sizes import request_bytes
from holdfast.stores.people import People, ViewMove

from .connection.database import Database
from .sql import statements
from .view.view import SqliteView

if TYPE_CHECKING:
    from .connection.writer import Work

T = TypeVar("T")

_SQL = statements("people")


def approvals(
    db: Database, tenant: str | None, limit: int, after: tuple[UUID, str] | None
) -> list[ApprovalRequest]:
    run, seq = ("", -1) if after is None else (str(after[0]), _seq(db, *after))
    part = (run, seq, max(0, limit))
    found = db.each(_SQL["open_of_all"], part) if tenant is None else db.each(_SQL["open"], (tenant, *part))
    requests = (
        ApprovalRequest(
            run=UUID(row[0]), type=row[1], tenant=row[2], step=row[3], ask_json=row[4], digest=row[5],
            opened_at=moment(row[6]), due_at=None if row[7] is None else moment(row[7]),
        )
        for row in found
    )  # fmt: skip
    return page(requests, request_bytes, limit)


def _seq(db: Database, run: UUID, name: str) -> int:
    row = db.one(_SQL["seq"], (str(run), name))
    return -1 if row is None else int(row[0])


class PeopleVerbs(People):
    """The verbs of people, as a mixin of the store."""

    if TYPE_CHECKING:

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _carry_out(self, limit: int = SLICE) -> int: ...

    async def _moved(self, run: UUID, move: ViewMove[T], *, promises: int = 0) -> tuple[T, Run]:
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
        return self._read(approvals, tenant_name(tenant), limit, after)
