"""Moves that people make: cancel, pause, resume, rewind, retry_run, set_priority, delete, restore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import msgspec

from holdfast.errors import ChangedSince, IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import OPEN, Move, Status, StepStatus, allows
from holdfast.records import Instant, Json

from . import budgets, chains, claiming, ending, plans
from .relocating import refuse_away
from .rows import Owes, RunRow, StepRow
from .view import R, View


def found(view: View[R], id: UUID, tenant: str | None) -> R:
    """Return the run that a verb is about: the present run of the chain. UnknownRun if it is unknown, deleted
    or of another tenant.
    """
    run = _found_or_deleted(view, id, tenant)
    if chains.first_of(view, run).deleted_at is not None:
        raise UnknownRun(id)
    return chains.present_of(view, run)


def _found_for(move: Move, view: View[R], id: UUID, tenant: str | None, since: Instant | None) -> R:
    run = _unchanged(view, found(view, id, tenant), since)
    refuse_away(run, move)
    if not allows(move, run.status):
        raise IllegalMove(run.id, move, run.status)
    return run


def _unchanged(view: View[R], run: R, since: Instant | None) -> R:
    """Return the run; ChangedSince if it has changed at this instant or later."""
    if since is not None and view.changed_since(run, since):
        raise ChangedSince(run.id)
    return run


def _itself_for(move: Move, view: View[R], id: UUID, tenant: str | None, since: Instant | None) -> R:
    """Return the run of this id. It must be the present run of its chain: earlier runs do not change."""
    present = found(view, id, tenant)
    run = view.run(id)
    assert run is not None
    if run is not present:
        raise IllegalMove(id, move, run.status, chains.named(present.id))
    return _found_for(move, view, id, tenant, since)


def cancel(
    view: View[R], id: UUID, tenant: str | None, by: str, *, children: bool, since: Instant | None = None
) -> R:
    """cancel: see `cancel_open`. Cancelled: unchanged. Ended otherwise, or moved to another store, where it
    goes on: IllegalMove."""
    run = _found_for(Move.CANCEL, view, id, tenant, since)
    if run.status is not Status.CANCELLED:
        cancel_open(view, run, by, children=children)
    return run


def cancel_open(view: View[R], run: R, by: str, *, children: bool) -> None:
    """Cancel an open run, deleted or not: fence + 1, lease cleared, open steps and the later steps of a plan
    cancelled; finished steps keep their results. children: the run owes the cancel of its open children.
    Trail: cancelled [by]."""
    claiming.interrupt(view, run)
    run.fence += 1
    ending.end(view, run, Status.CANCELLED)
    if children and view.has_open_children(run):
        run.owes |= Owes.CHILDREN
    view.note(run, "cancelled", by=by)


def pause(view: View[R], id: UUID, tenant: str | None, by: str, since: Instant | None = None) -> R:
    """pause: pending or waiting: paused at once. Leased: the pause is requested, and takes effect at a
    boundary; the first requester is named. Paused: unchanged. Ended: IllegalMove. Trail: paused [by], once it
    takes effect.
    """
    run = _found_for(Move.PAUSE, view, id, tenant, since)
    if run.status is Status.LEASED:
        if run.pause_asked_by is None:
            claiming.interrupt(view, run)
            run.pause_asked_by = by
    elif run.status is not Status.PAUSED:
        run.pause(run.status, by)
        view.note(run, "paused", by=by)
    return run


def resume(
    view: View[R],
    id: UUID,
    tenant: str | None,
    by: str,
    budget: int | None = None,
    since: Instant | None = None,
) -> R:
    """resume: waiting if nothing has come for it, else pending with the run_at it had. Leased with a
    requested pause: the request is withdrawn. Else IllegalMove. Trail: resumed [by status].

    A plan goes on by its rows: decisions made meanwhile count, and a current row that is not open is opened.
    A run that its budget has stopped needs a higher one: see `budgets`. With a budget every open run is
    taken; one that is not paused keeps its status.
    """
    run = _unchanged(view, found(view, id, tenant), since)
    refuse_away(run, Move.RESUME)
    settable = run.status in OPEN or budgets.is_top(run)  # open children may need what an ended run shares
    if not allows(Move.RESUME, run.status) and (budget is None or not settable):
        raise IllegalMove(run.id, Move.RESUME, run.status)
    if run.status is Status.LEASED and run.pause_asked_by is None and budget is None:
        raise IllegalMove(run.id, Move.RESUME, run.status, "no pause is asked for")
    budgets.renew(view, run, by, budget)
    if run.status is Status.PAUSED:
        go_on(view, run, by)
    elif run.status is Status.LEASED:
        claiming.interrupt(view, run)
        if run.pause_asked_by is not None:
            run.pause_asked_by = None
            view.note(run, "resumed", by=by, status=run.status)
    return run


def go_on(view: View[R], run: R, by: str) -> None:
    """Let a paused run go on."""
    assert run.resume_to is not None
    run.status, run.resume_to, run.pause_asked_by = run.resume_to, None, None
    entry = view.note(run, "resumed", by=by, status=run.status)
    if run.is_plan:
        plans.become(view, run, plans.come_to(view, run), counts_stay=True)
        entry["status"] = run.status if run.status in OPEN else Status.PENDING


def rewind(
    view: View[R],
    id: UUID,
    key: str | None,
    tenant: str | None,
    by: str,
    *,
    children: bool,
    since: Instant | None = None,
) -> R:
    """rewind: forget that step, all with a higher seq, and every cancelled one; None: forget all steps. The
    run is pending now (a paused one stays paused), its counts and its timeout start again, fence + 1. Trail:
    rewound [step forgotten status by].

    Rows of a plan become pending again instead; a row that has not begun cannot be rewound to (UnknownStep).
    children: the run owes the cancel of children of forgotten steps.
    """
    run = _itself_for(Move.REWIND, view, id, tenant, since)
    steps = view.outline(run)
    begun = _begun(run, steps)
    since = 0 if key is None else next((step.seq for step in begun if step.key == key), None)
    if since is None:
        keys = ", ".join(step.key for step in begun) or "none"
        raise UnknownStep(f"run {id} has no step {key!r}; it has: {keys}")
    gone = _forget(view, run, steps, {step.key for step in begun if step.seq >= since}, orphans=children)
    was_paused, asked_by = run.status is Status.PAUSED, run.pause_asked_by
    claiming.interrupt(view, run)
    run.begin_anew(view.now)
    if was_paused:
        run.pause(Status.PENDING, asked_by)
    else:
        run.status = Status.PENDING
    view.note(run, "rewound", step=key, forgotten=gone, status=run.status, by=by)
    _go_on(view, run)
    return run


def retry_run(view: View[R], id: UUID, tenant: str | None, by: str, since: Instant | None = None) -> R:
    """retry_run: a failed run is pending now, its counts and its timeout start again, fence + 1; the step
    that its error names, and cancelled steps, are forgotten. Else IllegalMove. Trail: retried [by status
    forgotten].
    """
    run = _itself_for(Move.RETRY_RUN, view, id, tenant, since)
    steps = view.outline(run)
    failed = _blamed(run.error)
    if run.is_plan:
        failed = next((step.key for step in steps if step.status is not StepStatus.SUCCEEDED), failed)
    gone = _forget(view, run, steps, {failed}, orphans=True)
    run.status = Status.PENDING
    run.begin_anew(view.now)
    view.note(run, "retried", by=by, status=run.status, forgotten=gone)
    _go_on(view, run)
    return run


def _begun(run: RunRow, steps: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return all steps by number; for a plan, those up to the current one."""
    if not run.is_plan:
        return steps
    end = next((n for n, step in enumerate(steps) if step.status is not StepStatus.SUCCEEDED), len(steps))
    return steps[: end + 1]


def _forget(
    view: View[R], run: R, steps: Sequence[StepRow], keys: Collection[str | None], *, orphans: bool
) -> list[str]:
    """Forget these steps with their receipts, and cancelled steps, which have no outcome. Rows of a plan
    start again.

    Their numbers are not given again. The item that wrote the last of them is still recognised as a repeat.
    """
    gone = [step for step in steps if step.key in keys or step.status is StepStatus.CANCELLED]
    if gone:
        run.step_mark = max(run.step_mark, view.highest(run))
        last = view.last_item(run)
        if (run.commit_fence, run.commit_no) < last:
            (run.commit_fence, run.commit_no), run.commit_answer = last, None
    if orphans and any(step.child is not None for step in gone):
        run.owes |= Owes.ORPHANS
    for step in gone:
        view.forget_receipts(run, step.key)
        if run.is_plan:
            plans.as_planned(step)
        else:
            view.drop(run, step)
    return [step.key for step in gone]


def _go_on(view: View[R], run: R) -> None:
    """Let a plan go on: its current row may be a gate or a wait, which is opened."""
    if run.is_plan and run.status is Status.PENDING:
        plans.become(view, run, plans.come_to(view, run))


def _blamed(error: Json | None) -> str | None:
    """Return the step that the error of the run names."""
    decoded = msgspec.json.decode(error) if error is not None else None
    return decoded.get("step") if isinstance(decoded, dict) else None


def set_priority(view: View[R], id: UUID, tenant: str | None, by: str, priority: int) -> R:
    """set_priority: change the priority of an open run; its status and its lease stay. Ended: IllegalMove.
    The same priority: unchanged. Trail: reprioritized [by priority].
    """
    run = found(view, id, tenant)
    refuse_away(run, "reprioritize")
    if run.status not in OPEN:
        raise IllegalMove(run.id, "reprioritize", run.status)
    if run.priority != priority:
        run.priority = priority
        view.note(run, "reprioritized", by=by, priority=priority)
    return run


def _found_or_deleted(view: View[R], id: UUID, tenant: str | None) -> R:
    run = view.run(id)
    if run is None or tenant not in {None, run.tenant}:
        raise UnknownRun(id)
    return run


def delete(view: View[R], id: UUID, tenant: str | None, by: str, since: Instant | None = None) -> R:
    """delete: hide the run; its status stays. Leased: first given back as pending (paused, if that was
    requested), fence + 1, attempt - 1. Deleted: unchanged. Trail: deleted [by, status when it was leased].

    For a chain: the present run and the first one. The first one then owes the same to all others.
    """
    run = _found_or_deleted(view, id, tenant)
    _unchanged(view, chains.present_of(view, run), since)
    return _all_of_chain(view, run, by, _delete)


def _all_of_chain(view: View[R], run: R, by: str, change: Callable[[View[R], R, str], None]) -> R:
    first, present = chains.first_of(view, run), chains.present_of(view, run)
    change(view, present, by)
    if first is not present:
        was_deleted_at = first.deleted_at
        change(view, first, by)
        first.owes |= 0 if first.deleted_at == was_deleted_at else Owes.CHAIN
    return present


def _delete(view: View[R], run: R, by: str) -> None:
    if run.deleted_at is not None:
        return
    run.deleted_at = view.now
    if run.status is not Status.LEASED:
        view.note(run, "deleted", by=by)
        return
    claiming.interrupt(view, run)
    asked_by = run.pause_asked_by
    run.let_go()
    run.status, run.run_at, run.pause_asked_by = Status.PENDING, view.now, None
    run.fence, run.attempt = run.fence + 1, max(0, run.attempt - 1)
    view.note(run, "deleted", by=by, status=run.status)
    if asked_by is not None:
        run.pause(Status.PENDING, asked_by)
        view.note(run, "paused", by=asked_by)


def restore(view: View[R], id: UUID, tenant: str | None, by: str) -> R:
    """restore: show a deleted run again, in its current state. Not deleted: unchanged. Trail: restored [by].

    For a chain: the present run and the first one. The first one then owes the same to all others.
    """
    return _all_of_chain(view, _found_or_deleted(view, id, tenant), by, _restore)


def _restore(view: View[R], run: R, by: str) -> None:
    if run.deleted_at is not None:
        run.deleted_at = None
        view.note(run, "restored", by=by)
