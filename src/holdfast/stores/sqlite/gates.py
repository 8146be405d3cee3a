"""approvals, decide: gates, and the people who decide them."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import Conflict
from holdfast.machine import deciding
from holdfast.machine.deciding import Ruling
from holdfast.records import ApprovalRequest, Decided, Instant, moment
from holdfast.records.sizes import request_bytes

from .database import Database
from .sql import statements
from .view import SqliteView

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


def decide(
    db: Database, now: Instant, run: UUID, tenant: str | None, ruling: Ruling
) -> tuple[Decided | Conflict, int]:
    """The answer, or why it is refused: a gate whose time was over is settled all the same. And what the run
    owes now."""
    view = SqliteView(db, now)
    answer = deciding.decide(view, run, tenant, ruling)
    view.save()
    row = view.run(run)
    assert row is not None
    if isinstance(answer, Conflict):
        return answer, row.owes
    step, decision, repeated = answer
    return Decided(step=step, decision=decision, repeated=repeated, run=view.shown_run(row)), row.owes
