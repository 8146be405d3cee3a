"""What a settled wait means for its run: the run is woken, hastened, or learns it later."""

from __future__ import annotations

from holdfast.lifecycle import Status, StepKind

from .plans import become, come_to
from .rows import StepRow
from .settling import came, look
from .view import Data, R, View


def settle(view: View[R], run: R, wait: StepRow) -> bool | None:
    """Settle the wait if what it waits for has come, or its time, and let the run go on; None: not yet.

    True: what it waited for has come, and reached the run. False: its time came, or the run is paused or
    deleted.
    """
    reached = run.is_reached
    entry = look(view, run, wait)
    if entry is None:
        return None
    go_on(view, run, wait, entry)
    return reached and came(entry)


def go_on(view: View[R], run: R, wait: StepRow, entry: Data) -> None:
    """Let the run learn that a wait was settled. `entry`: the wait's row in the trail.

    A waiting run becomes pending, run_at now, attempt, crashes and survived 0, and the trail row says so by
    `status`. A pending run that backs off gets run_at now. A paused run will resume to pending. A leased run
    stays as it is.

    A waiting plan whose task has waited becomes pending; behind any other wait the next row is current, as in
    `advance`. run_at is not earlier than it was. Whenever a plan's wait is settled, attempt and crashes begin
    anew: 0, also in a pause, at whose end all that is done; 1 where a park finds it so.
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
