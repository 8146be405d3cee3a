"""What runs owe since their last commit: news of their end, cancels of children, a look at their waits, the
same fate for all runs of a chain.

It was recorded with that commit, and is carried out here, a slice a commit, by whoever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast import bounds
from holdfast.lifecycle import FINAL, StepKind, StepStatus

from .chains import follow_first
from .people import cancel_open
from .rows import Owes
from .view import R, View
from .waking import settle


def carry_out(view: View[R], runs: Sequence[R], limit: int) -> int:
    """Carry out what these runs owe, as far as a slice of `limit` rows goes. Return how many parents were
    woken.
    """
    woken, left = 0, limit
    for run in runs:
        if left <= 0 or view.copied >= bounds.BATCH_BYTES:
            break
        if run.owes & Owes.END:
            run.owes &= ~Owes.END
            woken += run.status in FINAL and bool(tell_parent(view, run.parent, run.parent_step, run.id))
            left -= 1
        if run.owes & (Owes.CHILDREN | Owes.ORPHANS):
            left -= _cancel_children(view, run, max(1, left))
        if run.owes & Owes.LOOK:
            came = _look_again(view, run)
            woken, left = woken + came, left - max(1, came)
        if run.owes & Owes.CHAIN:
            left -= follow_first(view, run, max(1, left))
    return woken


def tell_parent(view: View[R], parent: UUID | None, key: str | None, child: UUID) -> bool | None:
    """deliver: settle the step of an open parent that waits for this child; None: nobody waits for it."""
    run = None if parent is None else view.run(parent)
    if run is None or run.status in FINAL:
        return None
    step = view.step(run, key or "")
    if step is None or (step.kind, step.status, step.child) != (StepKind.CHILD, StepStatus.WAITING, child):
        return None
    return settle(view, run, step)


def _cancel_children(view: View[R], run: R, limit: int) -> int:
    """Cancel a page of children, theirs included. Return how much that was."""
    page = view.children_to_cancel(run, limit, orphans=not run.owes & Owes.CHILDREN)
    for child in page:
        cancel_open(view, child, f"parent {run.id}", children=True)
    if len(page) < limit:
        run.owes &= ~(Owes.CHILDREN | Owes.ORPHANS)
    return max(1, len(page))


def _look_again(view: View[R], run: R) -> int:
    """One slice of a look that has stopped, whatever became of the run. Return how many waits got what
    they wait for.
    """
    came, begun = 0, view.copied
    for wait in view.to_look_at(run):
        if view.copied - begun >= bounds.BATCH_BYTES:
            return came
        came += bool(settle(view, run, wait))
    run.owes &= ~Owes.LOOK
    return came
