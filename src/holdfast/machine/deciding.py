"""decide: a person approves or rejects an open gate."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import StepStatus
from holdfast.records import Decision

from .gates import check_digest, check_same, decision, meant, verb
from .people import found
from .relocating import send_there
from .rows import StepRow
from .settling import decided
from .view import R, View
from .waking import go_on, settle


class Ruling(NamedTuple):
    """A decision of a person about a gate. step=None: the only gate that the run has had."""

    step: str | None
    approved: bool
    by: str
    comment: str
    digest: str | None


class Ruled(NamedTuple):
    """The decision that a gate has now. `repeated`: it had this decision before."""

    step: str
    decision: Decision
    repeated: bool


def decide(view: View[R], id: UUID, tenant: str | None, ruling: Ruling) -> Ruled | Conflict:
    """decide: record the decision of the gate, and let the run go on. Trail: approved or rejected [step by
    comment status?].

    If the gate was decided before, the same decision gets the same answer, and the other one is a Conflict. A
    gate whose deadline has passed is settled first, as a keeper would do it. The Conflict is returned and not
    raised, because the settled gate has to be saved, and the work that the run owes by it carried out.
    """
    run = found(view, id, tenant)
    run_id = run.id  # the id of the chain's present run; the caller may have named an earlier run
    gate = meant(run_id, view.gates(run), ruling.step)
    check_digest(run_id, gate.key, gate.digest, ruling.digest, approved=ruling.approved)
    if gate.status is StepStatus.WAITING and gate.due_at is not None and gate.due_at < view.now:
        settle(view, run, gate)
    undecided = gate.status is StepStatus.WAITING
    if undecided:
        decided(view, run, gate, approved=ruling.approved, by=ruling.by, comment=ruling.comment)
        word = "approved" if ruling.approved else "rejected"
        entry = view.note(run, word, step=gate.key, by=ruling.by, comment=ruling.comment)
        go_on(view, run, gate, entry)
    if gate.output is None:
        why = send_there(run.last_error) or f"gate {gate.key!r} was not decided before"
        return IllegalMove(run_id, verb(approved=ruling.approved), run.status, why)
    return _ruled(run_id, gate, ruling, repeated=not undecided)


def _ruled(id: UUID, gate: StepRow, ruling: Ruling, *, repeated: bool) -> Ruled | Conflict:
    assert gate.output is not None
    before = decision(gate.output)
    try:
        check_same(id, gate.key, before, approved=ruling.approved)
    except Conflict as refusal:
        return refusal
    return Ruled(gate.key, before, repeated)
