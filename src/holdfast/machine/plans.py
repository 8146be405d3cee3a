"""Plans: their rows, and the way of a run from row to row.

All rows exist from the start, numbered from 0. The current row is the first that has not succeeded. A task
waits for a worker. Gates, awaited events and sleeps are opened here, and looked at at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from holdfast.errors import Conflict, IllegalMove
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import Definition, Error, Item, PlanStep, Step
from holdfast.records.moves import Advance, BeginPlan, Fail, Park, Release, Retry

from . import ending
from .durations import micros
from .rows import PLAN, StepRow, shown
from .settling import look
from .view import Data, R, View

# Moves that bring the current task of a plan, and the status in which they bring it.
BRINGS: dict[type, StepStatus] = {
    Advance: StepStatus.SUCCEEDED,
    Park: StepStatus.WAITING,
    Retry: StepStatus.READY,
    Fail: StepStatus.FAILED,
}
MAY_BRING_NONE = frozenset({Retry, Fail, Release})


def strays(item: Item, current: str | None, *, is_plan: bool) -> bool:
    """Return True when an item does not fit the plan: it is not for a plan, or brings another step.

    In a plan a move brings the current task in the status of the move, and nothing else: advance and park
    must (SUCCEEDED, WAITING), retry and fail may (READY, FAILED), release does not. An item with any other
    step is `lost`. So are checkpoints and completes: a plan goes on only by advance.
    """
    move = type(item.move)
    if move is BeginPlan:
        return bool(item.steps)
    if not is_plan:
        return move is Advance
    if not item.steps:
        return move not in MAY_BRING_NONE
    step, *more = item.steps
    brought = (step.key, step.kind, step.status)
    endless = step.topic is None and step.due_at is None and step.delay_seconds is None
    fits = not more and brought == (current, StepKind.TASK, BRINGS.get(move))
    return not fits or (move is Park and endless)


def refuse_changed(before: Definition | None, now: Definition) -> None:
    """Refuse a definition whose steps differ from the published ones: other steps need another version."""
    if before is None or (before.kind, before.steps) == (now.kind, now.steps):
        return
    name, _, version = now.type.rpartition(".v")
    what = "other steps" if before.kind == now.kind else f"the kind {before.kind}"
    raise Conflict(
        f"{now.type} has been published with {what}: bump its version, as in {name}.v{int(version) + 1}"
    )


def insert(view: View[R], run: R, steps: Sequence[PlanStep]) -> None:
    """Make the run a plan: insert all its rows, pending, numbered by their order."""
    run.kind = PLAN
    view.put_all(run, planned_rows(tuple(steps), run.max_attempts))


@lru_cache(maxsize=64)
def planned_rows(steps: tuple[PlanStep, ...], max_attempts: int) -> tuple[StepRow, ...]:
    """Return the first state of the rows of a plan, which is the same for all its runs."""
    return tuple(
        StepRow(
            seq, step.name, step.kind, StepStatus.PENDING, topic=step.topic, ask=step.ask, digest=step.digest,
            max_attempts=step.max_attempts or max_attempts if step.kind is StepKind.TASK else None,
            timeout_seconds=step.timeout_seconds, on_timeout=step.on_timeout,
        )
        for seq, step in enumerate(steps)
    )  # fmt: skip


def as_planned(step: StepRow) -> None:
    """Reset the row to its state at the start."""
    step.status, step.attempts, step.output, step.error, step.cost = StepStatus.PENDING, 0, None, None, 0
    step.topic = step.topic if step.kind is StepKind.EVENT else None
    step.due_at = step.started_at = step.finished_at = step.wake = None
    step.fence = step.number = step.waits = 0


def following(view: View[R], run: R, done: StepRow | None) -> StepRow | None:
    """Return the row after `done`; without it, the current row."""
    return view.current(run) if done is None else view.after(run, done.seq)


def come_to(view: View[R], run: R, done: StepRow | None = None) -> StepRow | None:
    """Make the next row current. Gates and waits on the way are opened, until one of them stays open.

    Return the task to execute, the open wait, or a row that has failed or drifted. None: all rows are done.
    """
    while done is None or done.status is not StepStatus.FAILED:
        step = following(view, run, done)
        if step is None or step.status is not StepStatus.PENDING or step.kind is StepKind.TASK:
            return step
        opened = _open(view, run, step)
        if look(view, run, step) is None:
            opened["status"] = Status.WAITING
            return step
        done = step
    return done


def _open(view: View[R], run: R, step: StepRow) -> Data:
    step.status, step.started_at, step.fence = StepStatus.WAITING, view.now, run.fence
    step.due_at = None if step.timeout_seconds is None else view.now + micros(step.timeout_seconds)
    return view.note(run, opening(step.kind), step=step.key, kind=step.kind)


def opening(kind: StepKind) -> str:
    """Return the type of the trail row for a wait that is opened."""
    return "approval_opened" if kind is StepKind.APPROVAL else "waiting"


def become(view: View[R], run: R, step: StepRow | None, *, counts_stay: bool = False) -> None:
    """Set the status of a run without a lease by its current row: waiting, pending, succeeded or failed.

    Its counts of attempts and crashes start again, unless counts_stay.
    """
    counts = run.attempt, run.crashes, run.survived
    run.attempt = run.crashes = run.survived = 0
    if step is None:
        ending.succeed(view, run)
    elif step.status is StepStatus.WAITING:
        run.status = Status.WAITING
        run.show_wait(step)
    elif step.status is StepStatus.PENDING:
        run.status = Status.PENDING
        run.show_wait(None)
    else:
        fail(view, run, step)
    if counts_stay:
        run.attempt, run.crashes, run.survived = counts


def fail(view: View[R], run: R, step: StepRow) -> None:
    """Fail the run by a row that has failed. Any other row that is not pending is drift."""
    if step.status is StepStatus.FAILED and step.error is not None:
        error = msgspec.json.decode(step.error, type=Error)
    else:
        message = f"step {step.key!r} is {step.status}, though it has not begun"
        error = Error(kind="drift", message=message, step=step.key)
    run.error = msgspec.json.encode(error).decode()
    run.last_error = f"{error.kind}: {error.message}"
    ending.fail(view, run, error.kind, run.last_error)


def append_step(view: View[R], run: R, name: str, max_attempts: int | None) -> Step:
    """append_step: add a task after the last row of an open plan. Trail: step_added.

    A repeat returns the last row, if it was added with the same attempts and is still pending.
    """
    if run.status in FINAL:
        raise IllegalMove(run.id, "append_step", run.status)
    if not run.is_plan:
        raise Conflict(f"run {run.id} is no plan: its steps are what its code asks for")
    attempts, there = max_attempts or run.max_attempts, view.step(run, name)
    if there is not None and not _is_added_again(view, run, there, attempts):
        raise Conflict(f"run {run.id} has a step {name!r} already: give the new one another name")
    if there is None:
        there = StepRow(
            view.next_seq(run), name, StepKind.TASK, StepStatus.PENDING, max_attempts=attempts
        )  # fmt: skip
        view.put(run, there)
        view.note(run, "step_added", step=name)
    return shown(there)


def _is_added_again(view: View[R], run: R, there: StepRow, attempts: int) -> bool:
    """Return True when this row was added by the same call before: the caller did not get the answer."""
    as_then = (there.status, there.max_attempts) == (StepStatus.PENDING, attempts)
    return as_then and view.after(run, there.seq) is None and view.was_added(run, there.key)
