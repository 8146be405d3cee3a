"""Waking: the effect of a settled wait on its run. The run becomes pending, is retried earlier, or learns
it later."""

from __future__ import annotations

from holdfast.lifecycle import Status, StepKind

from .plans import become, come_to
from .rows import StepRow
from .settling import has_come, look
from .view import Data, R, View


def settle(view: View[R], run: R, wait: StepRow) -> bool | None:
    """Settle the wait if its event, child or deadline has come, and let the run go on. None: not yet.

    True: the event or child has come and reached the run. False: the deadline has passed, or the run is
    paused or deleted.
    """
    reached = run.is_reached
    entry = look(view, run, wait)
    if entry is None:
        return None
    go_on(view, run, wait, entry)
    return reached and has_come(entry)


def go_on(view: View[R], run: R, wait: StepRow, entry: Data) -> None:
    """Let the run learn that a wait was settled. `entry`: the wait's row in the trail.

    A waiting run becomes pending, run_at now, attempt, crashes and survived 0, and the trail row says so by
    `status`. A pending run that waits for a retry gets run_at now. A paused run will resume to pending. A
    leased run stays as it is.

    A waiting plan whose task has waited becomes pending; after any other wait the next row is current, as in
    `advance`. run_at is not earlier than it was. Whenever a plan's wait is settled, attempt and crashes start
    again at 0. A paused plan goes on when it resumes. When park itself settles the wait, the attempt is 1.
    """
    now = view.now
    match run.status:
        case Status.WAITING if run.is_plan and wait.kind is not StepKind.TASK:
            run.run_at = max(run.run_at, now)
            become(view, run, come_to(view, run, wait))
        case Status.WAITING:
            run.status, run.run_at = Status.PENDING, now
            run.attempt = run.crashes = run.survived = 0
            run.show_wait(None)
        case Status.PENDING:
            run.run_at = min(run.run_at, now)
            return
        case Status.PAUSED:
            run.resume_to, run.run_at = Status.PENDING, max(run.run_at, now) if run.is_plan else now
            if run.is_plan:
                run.attempt = run.crashes = run.survived = 0
            return
        case _:
            return
    if run.status is Status.PENDING:
        entry["status"] = Status.PENDING
