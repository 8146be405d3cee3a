"""Work that a run's last commit left to do: tell the parent, cancel children, look again at open waits,
delete or restore the other runs of its chain, resume the runs that its new budget covers.

The commit recorded it in `owes`. Any process may carry it out, in slices of one commit each.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast import bounds
from holdfast.lifecycle import FINAL, StepKind, StepStatus

from .budgets import of_account
from .chains import follow_first
from .people import cancel_open, go_on
from .rows import Owes
from .view import R, View
from .waking import settle


def carry_out(view: View[R], runs: Sequence[R], limit: int) -> int:
    """Carry out what these runs owe, up to `limit` rows. Return how many parents were woken."""
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
            received = _look_again(view, run)
            woken, left = woken + received, left - max(1, received)
        if run.owes & Owes.RESUME:
            left -= _resume_members(view, run, max(1, left))
        if run.owes & Owes.CHAIN:
            left -= follow_first(view, run, max(1, left))
    return woken


def tell_parent(view: View[R], parent: UUID | None, key: str | None, child: UUID) -> bool | None:
    """deliver: settle the step of an open parent that waits for this child. None: no parent waits for it."""
    run = None if parent is None else view.run(parent)
    if run is None or run.status in FINAL:
        return None
    step = view.step(run, key or "")
    if step is None or (step.kind, step.status, step.child) != (StepKind.CHILD, StepStatus.WAITING, child):
        return None
    return settle(view, run, step)


def _cancel_children(view: View[R], run: R, limit: int) -> int:
    """Cancel some children, which then owe the cancel of their own children. Return how many, at least 1."""
    page = view.children_to_cancel(run, limit, orphans=not run.owes & Owes.CHILDREN)
    for child in page:
        cancel_open(view, child, f"parent {run.id}", children=True)
    if len(page) < limit:
        run.owes &= ~(Owes.CHILDREN | Owes.ORPHANS)
    return max(1, len(page))


def _resume_members(view: View[R], run: R, limit: int) -> int:
    """Resume some runs that were paused because the budget of this run was spent. Return how many, at least
    1."""
    if run.account is None:  # of a file that somebody has edited
        run.owes &= ~Owes.RESUME
        return 1
    by = of_account(run.account)
    page = view.stopped_members(run.account, by, limit)
    for member in page:
        go_on(view, member, by)
    if len(page) < limit:
        run.owes &= ~Owes.RESUME
    return max(1, len(page))


def _look_again(view: View[R], run: R) -> int:
    """Continue a look at the waits of a run that stopped before. Return how many waits got what they wait
    for."""
    received, begun = 0, view.copied
    for wait in view.to_look_at(run):
        if view.copied - begun >= bounds.BATCH_BYTES:
            return received
        received += bool(settle(view, run, wait))
    run.owes &= ~Owes.LOOK
    return received
