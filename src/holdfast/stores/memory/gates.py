"""approvals: the gates that wait for a decision."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import page
from holdfast.lifecycle import OPEN, StepKind
from holdfast.records import ApprovalRequest, moment
from holdfast.records.sizes import request_bytes

from .rows import State
from .view import open_waits


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
