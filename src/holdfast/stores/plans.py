"""What every store says of plans: what their holders may bring, and when one may not be published again."""

from __future__ import annotations

from holdfast.errors import Conflict
from holdfast.lifecycle import Move, StepKind, StepStatus
from holdfast.records import Definition, Item

# Of the moves that a plan makes, those that bring its current task, and as what.
BRINGS = {
    Move.ADVANCE: StepStatus.SUCCEEDED,
    Move.PARK: StepStatus.WAITING,
    Move.RETRY: StepStatus.READY,
    Move.FAIL: StepStatus.FAILED,
}
MAY_BRING_NONE = frozenset({Move.RETRY, Move.FAIL, Move.RELEASE})


def strays(item: Item, current: str | None, *, is_plan: bool) -> bool:
    """Whether an item is for no plan, or brings anything but the current step as its move brings it."""
    if item.move is Move.ADVANCE and item.plan:
        return bool(item.steps)
    if not is_plan:
        return item.move is Move.ADVANCE
    if not item.steps:
        return item.move not in MAY_BRING_NONE
    step, *more = item.steps
    brought = (step.key, step.kind, step.status)
    endless = step.topic is None and step.due_at is None and step.delay_seconds is None
    fits = not more and brought == (current, StepKind.TASK, BRINGS.get(item.move))
    return not fits or (item.move is Move.PARK and endless)


def refuse_changed(before: Definition | None, now: Definition) -> None:
    """Runs of a version have its steps: another list of steps is another version."""
    if before is None or (before.kind, before.steps) == (now.kind, now.steps):
        return
    name, _, version = now.type.rpartition(".v")
    what = "other steps" if before.kind == now.kind else f"the kind {before.kind}"
    raise Conflict(
        f"{now.type} has been published with {what}: bump its version, as in {name}.v{int(version) + 1}"
    )
