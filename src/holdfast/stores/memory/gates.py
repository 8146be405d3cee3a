"""approvals, decide: gates, and the people who decide them."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import OPEN, StepKind, StepStatus
from holdfast.records import ApprovalRequest, Decided, Instant, moment
from holdfast.records.sizes import request_bytes
from holdfast.stores.gates import check_digest, check_same, decision, meant, verb

from .moves import find
from .reads import shown
from .rows import State
from .settling import decided, go_on, open_waits, settle


def approvals(
    state: State, tenant: str | None, limit: int, after: tuple[UUID, str] | None
) -> list[ApprovalRequest]:
    gates = sorted(
        (row.id, gate.seq, row, gate)
        for row in state.runs.values()
        if row.status in OPEN and row.deleted_at is None and tenant in {None, row.tenant}
        for gate in open_waits(row)
        if gate.kind is StepKind.APPROVAL
    )
    if after is not None:
        # One that is decided by now has another number: its run is looked through once more.
        last = next((seq for run, seq, _, gate in gates if (run, gate.key) == after), -1)
        gates = [one for one in gates if one[:2] > (after[0], last)]
    requests = (
        ApprovalRequest(
            run=run, type=row.type, tenant=row.tenant, step=gate.key, ask_json=gate.ask, digest=gate.digest,
            opened_at=moment(gate.started_at or row.created_at),
            due_at=None if gate.due_at is None else moment(gate.due_at),
        )
        for run, _, row, gate in gates
    )  # fmt: skip
    return page(requests, request_bytes, limit)


def decide(
    state: State,
    run: UUID,
    step: str | None,
    *,
    approved: bool,
    by: str,
    comment: str,
    digest: str | None,
    tenant: str | None,
    now: Instant,
) -> Decided | Conflict:
    """Answer the decision, or why it is refused: a gate whose time was over is settled all the same."""
    row = find(state, run, tenant)
    opened = [
        one
        for one in row.in_order()
        if one.kind is StepKind.APPROVAL and one.status is not StepStatus.PENDING
    ]
    gate = meant(run, opened, step)
    check_digest(run, gate.key, gate.digest, digest, approved=approved)
    if gate.status is StepStatus.WAITING and gate.due_at is not None and gate.due_at < now:
        settle(state, row, gate, now)
    undecided = gate.status is StepStatus.WAITING
    if undecided:
        decided(row, gate, now, approved=approved, by=by, comment=comment)
        word = "approved" if approved else "rejected"
        entry = state.note(row, word, now, step=gate.key, by=by, comment=comment)
        go_on(state, row, gate, entry, now)
    if gate.output is None:
        return IllegalMove(
            run, verb(approved=approved), row.status, f"gate {gate.key!r} was not decided before"
        )
    before = decision(gate.output)
    try:
        check_same(run, gate.key, before, approved=approved)
    except Conflict as refusal:
        return refusal
    return Decided(step=gate.key, decision=before, repeated=not undecided, run=shown(row))
