"""What runs owe since their last commit: news of their end, cancels of children, a look at their waits."""

from __future__ import annotations

from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import Instant

from .rows import Owes, RunRow, State, check
from .settling import is_reached, look_at_all, settle


def carry_out(state: State, now: Instant) -> int:
    """Until nobody owes anything, for a cancelled child has children too. Answers the parents woken."""
    woken = 0
    while is_owed(state):
        woken += carry_out_some(state, now, len(state.runs))
    return woken


def is_owed(state: State) -> bool:
    return any(row.owes for row in state.runs.values())


def carry_out_some(state: State, now: Instant, limit: int) -> int:
    """Carry out what a few runs owe, by id. Returns how many parents were woken."""
    woken = 0
    for row in sorted((row for row in state.runs.values() if row.owes), key=lambda row: row.id)[:limit]:
        owed, row.owes = row.owes, Owes.NOTHING
        woken += Owes.END in owed and _tell_parent(state, row, now)
        if owed & (Owes.CHILDREN | Owes.ORPHANS):
            _cancel_children(state, row, owed, now)
        if Owes.LOOK in owed:
            came, left = look_at_all(state, row, now)
            woken += came
            row.owes |= Owes.LOOK if left else Owes.NOTHING
    return woken


def _cancel_children(state: State, row: RunRow, owed: Owes, now: Instant) -> None:
    family = [each for each in state.runs.values() if (each.parent, each.tenant) == (row.id, row.tenant)]
    for child in sorted(family, key=lambda child: child.id):
        if Owes.CHILDREN in owed or _is_orphan(row, child):
            cancel(state, child, f"parent {row.id}", now)


def _tell_parent(state: State, row: RunRow, now: Instant) -> bool:
    parent = None if row.parent is None else state.runs.get(row.parent)
    step = None if parent is None else parent.steps.get(row.parent_step or "")
    if parent is None or step is None or parent.status in FINAL or row.status not in FINAL:
        return False
    if (step.kind, step.status, step.child) != (StepKind.CHILD, StepStatus.WAITING, row.id):
        return False
    reached = is_reached(parent)
    return bool(settle(state, parent, step, now)) and reached


def _is_orphan(parent: RunRow, child: RunRow) -> bool:
    step = parent.steps.get(child.parent_step or "")
    return child.parent_step is not None and (step is None or step.child != child.id)


def cancel(state: State, row: RunRow, by: str, now: Instant, *, children: bool = True) -> None:
    """An open run, deleted or not; any other is left as it is."""
    if row.status in FINAL:
        return
    row.fence += 1
    state.end(row, Status.CANCELLED, now)
    if children:
        row.owes |= Owes.CHILDREN
    state.note(row, "cancelled", now, by=by)
    check(row)
