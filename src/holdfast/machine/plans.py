"""Plans: their rows, and the one way in which a run goes on from row to row.

All rows are there from the start, numbered from 0. The current one is the first that has not succeeded; a
task waits for a worker, everything else is opened here, and looked at at once.
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

# Of the moves that a plan makes, those that bring its current task, and as what.
BRINGS: dict[type, StepStatus] = {
    Advance: StepStatus.SUCCEEDED,
    Park: StepStatus.WAITING,
    Retry: StepStatus.READY,
    Fail: StepStatus.FAILED,
}
MAY_BRING_NONE = frozenset({Retry, Fail, Release})


def strays(item: Item, current: str | None, *, is_plan: bool) -> bool:
    """Whether an item is for no plan, or brings anything but the current step as its move brings it.

    Of a plan a move brings the current task in its own status, and nothing else: advance and park must
    (SUCCEEDED, WAITING), retry and fail may (READY, FAILED), release does not. Any other step is `lost`, and
    so are checkpoints and completes of a plan: it goes on by advance alone.
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
    """Runs of a version have its steps: another list of steps is another version."""
    if before is None or (before.kind, before.steps) == (now.kind, now.steps):
        return
    name, _, version = now.type.rpartition(".v")
    what = "other steps" if before.kind == now.kind else f"the kind {before.kind}"
    raise Conflict(
        f"{now.type} has been published with {what}: bump its version, as in {name}.v{int(version) + 1}"
    )


def insert(view: View[R], run: R, steps: Sequence[PlanStep]) -> None:
    """Make the run a plan: all its rows, pending, numbered by their order."""
    run.kind = PLAN
    view.put_all(run, _rows(tuple(steps), run.max_attempts))


@lru_cache(maxsize=64)
def _rows(steps: tuple[PlanStep, ...], max_attempts: int) -> tuple[StepRow, ...]:
    """The rows of a plan as they begin, the same for all its runs."""
    return tuple(
        StepRow(
            seq, step.name, step.kind, StepStatus.PENDING, topic=step.topic, ask=step.ask, digest=step.digest,
            max_attempts=step.max_attempts or max_attempts if step.kind is StepKind.TASK else None,
            timeout_seconds=step.timeout_seconds, on_timeout=step.on_timeout,
        )
        for seq, step in enumerate(steps)
    )  # fmt: skip


def as_planned(step: StepRow) -> None:
    """The row is again as it was at the start."""
    step.status, step.attempts, step.output, step.error, step.cost = StepStatus.PENDING, 0, None, None, 0
    step.topic = step.topic if step.kind is StepKind.EVENT else None
    step.due_at = step.started_at = step.finished_at = step.wake = None
    step.fence = step.number = step.waits = 0


def following(view: View[R], run: R, done: StepRow | None) -> StepRow | None:
    """The row behind one that is done; of a plan that begins or goes on, its current one."""
    return view.current(run) if done is None else view.after(run, done.seq)


def come_to(view: View[R], run: R, done: StepRow | None = None) -> StepRow | None:
    """Make the next row current, opening gates and waits on the way until one holds the run up.

    Return a task that is to be called, a wait that is open, one that has failed or is not as it should be; or
    None: all are done.
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
    """The word of the trail for a wait that is opened."""
    return "approval_opened" if kind is StepKind.APPROVAL else "waiting"


def become(view: View[R], run: R, step: StepRow | None, *, counts_stay: bool = False) -> None:
    """Make of a run that nobody holds what its current row says: waiting, pending, succeeded or failed.

    Counts begin anew, unless they are to stay.
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
    """A row that has failed fails its run; any other that is not pending is drift."""
    if step.status is StepStatus.FAILED and step.error is not None:
        error = msgspec.json.decode(step.error, type=Error)
    else:
        message = f"step {step.key!r} is {step.status}, though it has not begun"
        error = Error(kind="drift", message=message, step=step.key)
    run.error = msgspec.json.encode(error).decode()
    run.last_error = f"{error.kind}: {error.message}"
    ending.fail(view, run, error.kind, run.last_error)


def append_step(view: View[R], run: R, name: str, max_attempts: int | None) -> Step:
    """append_step: add a task behind the last row of an open plan. Trail: step_added.

    The last row, if it was added with these attempts and is still pending, is answered as the first time.
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
    """Whether the caller that added the last row did not hear the answer."""
    as_then = (there.status, there.max_attempts) == (StepStatus.PENDING, attempts)
    return as_then and view.after(run, there.seq) is None and view.was_added(run, there.key)
