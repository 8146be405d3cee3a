"""approvals, decide: gates, and the people who decide them."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import page
from holdfast.errors import Conflict
from holdfast.lifecycle import OPEN, StepKind
from holdfast.machine import deciding
from holdfast.machine.deciding import Ruling
from holdfast.records import ApprovalRequest, Decided, Instant, moment
from holdfast.records.sizes import request_bytes

from .reads import shown
from .rows import State
from .view import MemoryView, open_waits


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


def decide(state: State, run: UUID, tenant: str | None, ruling: Ruling, now: Instant) -> Decided | Conflict:
    """Answer the decision, or why it is refused: a gate whose time was over is settled all the same."""
    view = MemoryView(state, now)
    answer = deciding.decide(view, run, tenant, ruling)
    view.save()
    if isinstance(answer, Conflict):
        return answer
    step, decision, repeated = answer
    return Decided(step=step, decision=decision, repeated=repeated, run=shown(state.runs[run]))
