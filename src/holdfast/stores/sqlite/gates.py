"""approvals, decide: gates, and the people who decide them."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import Conflict, IllegalMove, UnknownRun
from holdfast.lifecycle import Status, StepStatus
from holdfast.machine.gates import check_digest, check_same, decision, meant, verb
from holdfast.records import ApprovalRequest, Decided, Instant, Step, moment
from holdfast.records.sizes import request_bytes

from . import plans, waits
from .database import Database
from .rows import STEP_COLUMNS, run_of, step
from .settling import Way, Whose
from .sql import statements

_SQL = statements("gates")
_GATES = _SQL["gates"].replace("$step_columns", STEP_COLUMNS)


class Ruling(NamedTuple):
    """What someone says to a gate. step: None: the only one there has been."""

    step: str | None
    approved: bool
    by: str
    comment: str
    digest: str | None


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


def decide(db: Database, now: Instant, run: UUID, tenant: str | None, ruling: Ruling) -> Decided | Conflict:
    """The answer, or why it is refused: a gate whose time was over is settled all the same."""
    row = db.one(_SQL["run"], (str(run), tenant))
    if row is None:
        raise UnknownRun(run)
    gate = meant(run, [step(one) for one in db.all(_GATES, (str(run),))], ruling.step)
    check_digest(run, gate.key, gate.digest, ruling.digest, approved=ruling.approved)
    undecided = gate.status is StepStatus.WAITING
    if undecided and gate.due_at is not None and gate.due_at < now:
        waits.settle(db, now, str(run), gate)
        undecided = False
    elif undecided:
        _decide(Way(db, now, str(run), Whose(*row)), gate, ruling)
    try:
        return _decided(db, run, gate.key, ruling, repeated=not undecided)
    except Conflict as refusal:
        return refusal


def _decide(way: Way, gate: Step, ruling: Ruling) -> None:
    way.decided(gate, approved=ruling.approved, by=ruling.by, comment=ruling.comment)
    word = "approved" if ruling.approved else "rejected"
    entry = way.note(word, step=gate.key, by=ruling.by, comment=ruling.comment)
    waits.go_on(way, gate, entry)
    way.write()


def _decided(db: Database, run: UUID, key: str, ruling: Ruling, *, repeated: bool) -> Decided:
    gate, shown = plans.named(db, str(run), key), run_of(db, str(run))
    assert shown is not None
    if gate.output is None:
        status = Status(shown.status)
        raise IllegalMove(run, verb(approved=ruling.approved), status, f"gate {key!r} was not decided before")
    before = decision(gate.output)
    check_same(run, key, before, approved=ruling.approved)
    return Decided(step=key, decision=before, repeated=repeated, run=shown)
