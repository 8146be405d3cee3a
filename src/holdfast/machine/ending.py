"""The end of a run: complete, fail, cancel, time_out and finished plans all come here."""

from __future__ import annotations

from holdfast.lifecycle import SETTLED, Status, StepStatus

from .durations import micros
from .rows import Owes, RunRow, raw
from .view import R, View


def end(view: View[R], run: R, status: Status) -> None:
    """End the run: finished_at now, expires_at by its ttl, the lease cleared, open steps (ready, waiting)
    cancelled, a requested pause dropped. The caller has set its error.

    When the run of a plan ends without success, its current step ends with it. A failed run: the step fails
    with the error of the run (trail step_failed before failed), unless it has failed already, and later steps
    stay pending. A cancelled run: the step and all later ones are cancelled. A run with a parent_step then
    owes its parent the news: see `deliver`.
    """
    if run.kind == "plan" and status is Status.FAILED:
        _fail_current(view, run)
    elif run.kind == "plan" and status is Status.CANCELLED:
        _cancel_rest(view, run)
    for step in view.open_steps(run):
        step.status, step.finished_at = StepStatus.CANCELLED, view.now
    _finish(run, status, view.now)


def _fail_current(view: View[R], run: R) -> None:
    step = view.current(run)
    if step is None or step.status in SETTLED:
        return
    step.finished_at = view.now
    step.status, step.error, step.attempts = StepStatus.FAILED, run.error, _tried(run)
    view.note(run, "step_failed", step=step.key, error=raw(run.error))


def _cancel_rest(view: View[R], run: R) -> None:
    """Cancel the steps that have not ended: the current step and all later ones."""
    for step in view.outline(run):
        if step.status not in SETTLED:
            step.status, step.finished_at = StepStatus.CANCELLED, view.now


def _finish(run: RunRow, status: Status, now: int) -> None:
    run.let_go()
    run.show_wait(None)
    run.status, run.finished_at = status, now
    run.resume_to = run.pause_asked_by = None
    run.expires_at = None if run.ttl_seconds is None else now + micros(run.ttl_seconds)
    if run.parent_step is not None:
        run.owes |= Owes.END


def succeed(view: View[R], run: R) -> None:
    """End the run with success. Trail: succeeded."""
    run.error = run.last_error = None
    end(view, run, Status.SUCCEEDED)
    view.note(run, "succeeded")


def fail(view: View[R], run: R, kind: str | None, message: str | None) -> None:
    """End the run without success. The caller has set its error. Trail: failed [kind message attempt
    max_attempts].
    """
    end(view, run, Status.FAILED)
    view.note(run, "failed", kind=kind, message=message, **tries(run))


def tries(run: RunRow, *, given_back: bool = False) -> dict[str, object]:
    """Return the number of attempts and their maximum, for the trail. Crashes do not count as attempts.

    given_back: the execution that ends now does not count either.
    """
    most = run.max_attempts if run.tried_of is None else run.tried_of
    return {"attempt": max(0, _tried(run) - given_back), "max_attempts": most}


def _tried(run: RunRow) -> int:
    return max(0, run.attempt - run.crashes)
