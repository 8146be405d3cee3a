"""approvals: the gates that wait for a decision."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import page
from holdfast.records import ApprovalRequest, moment
from holdfast.records.sizes import request_bytes

from .database import Database
from .sql import statements

_SQL = statements("gates")


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
