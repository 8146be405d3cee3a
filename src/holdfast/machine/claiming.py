"""claim, renew, lease_states and show_running: the lease of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.lifecycle import Status, StepStatus
from holdfast.records import Answer, Held, Instant, Lease, LeaseState, Running, RunningStep

from .rows import RunRow, holds
from .view import R, View


def claim(view: View[R], run: R, worker: str, until: Instant) -> None:
    """claim: leased by the worker until then, attempt + 1, fence + 1, no pause is asked for. Trail: leased
    [worker attempt fence].

    The caller has checked that the run is pending, due and not deleted.
    """
    run.status, run.leased_by, run.lease_until = Status.LEASED, worker, until
    run.attempt, run.fence, run.pause_asked_by = run.attempt + 1, run.fence + 1, None
    view.note(run, "leased", worker=worker, attempt=run.attempt, fence=run.fence)


def begin(view: View[R], run: R, started_at: Instant | None) -> None:
    """Write `started`, once for each fence: the first renewal or commit of an execution brings its time."""
    if started_at is not None and run.started_fence != run.fence:
        run.started_fence = run.fence
        run.started_at = started_at if run.started_at is None else run.started_at
        view.note(run, "started", at=started_at)


def renew(view: View[R], run: R | None, lease: Lease, worker: str, until: Instant) -> Held:
    """renew: extend the lease, checked by its fence like an item of a commit. Trail: started, if it is due;
    heartbeat [worker].

    survived: the crashes are forgiven. The answer says whether a pause is requested, and lists the waits
    settled with seq > known.
    """
    if run is None or not holds(run, lease.fence, view.now):
        return Held(answer=lost(run))
    run.lease_until = until
    begin(view, run, lease.started_at)
    if lease.heartbeat:
        view.note(run, "heartbeat", worker=worker)
    if lease.survived:
        forgive(run)
    if lease.progress is not None:
        run.progress = lease.progress
    settled, more = ((), False) if lease.known is None else view.news(run, lease.known)
    asked = run.pause_asked_by is not None
    return Held(answer=Answer.APPLIED, renewed=True, pause_asked=asked, settled=settled, more=more)


def forgive(run: RunRow) -> None:
    """Forget the crashes of a run that has executed for a whole lease time.

    Only once since its last progress: else a run that kills its worker later than that would never fail.
    """
    if run.crashes and not run.survived:
        run.attempt, run.crashes, run.survived = max(1, run.attempt - run.crashes), 0, 1


def lost(run: R | None) -> Answer:
    """Return the answer for a holder that has lost the run."""
    return Answer.CANCELLED if run is not None and run.status is Status.CANCELLED else Answer.LOST


def lease_state(run: RunRow | None, fence: int, now: Instant) -> LeaseState:
    """lease_states: the state of one lease. Nothing is written."""
    if run is None or not holds(run, fence, now):
        return LeaseState(answer=lost(run))
    return LeaseState(answer=Answer.APPLIED, pause_asked=run.pause_asked_by is not None)


def interrupt(view: View[R], run: R) -> None:
    """Tell the holder of a leased run that somebody else moves the run. Called before the move."""
    if run.status is Status.LEASED:
        view.call_holders()


def show_running(view: View[R], run: R | None, row: Running) -> bool:
    """show_running: keep the steps that the holder executes now, checked by its fence like an item of a
    commit. Trail: started, if it is due. Return False when nothing was written.
    """
    if run is None or not holds(run, row.fence, view.now):
        return False
    begin(view, run, row.started_at)
    view.show_running(run, row.steps)
    return True


def unrecorded(
    steps: Iterable[RunningStep], recorded: Mapping[str, tuple[StepStatus, int]]
) -> tuple[RunningStep, ...]:
    """Return the steps whose try is not recorded yet. `recorded`: status and attempts of recorded steps, by
    key. A plan has its rows before they are executed; a step that is retried has the row of its last try.
    """
    return tuple(
        one
        for one in steps
        if (row := recorded.get(one.step)) is None
        or row[0] in {StepStatus.PENDING, StepStatus.RUNNING}
        or (row[0] is StepStatus.READY and row[1] < one.attempt)
    )
