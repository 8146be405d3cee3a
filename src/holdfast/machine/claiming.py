"""claim and renew: the lease of a run."""

from __future__ import annotations

from holdfast.lifecycle import Status
from holdfast.records import Answer, Held, Instant, Lease

from .rows import RunRow, holds
from .view import R, View


def claim(view: View[R], run: R, worker: str, until: Instant) -> None:
    """claim: leased by the worker until then, attempt + 1, fence + 1. Trail: leased [worker attempt fence].

    The caller has checked that the run is pending, due and not deleted.
    """
    run.status, run.leased_by, run.lease_until = Status.LEASED, worker, until
    run.attempt, run.fence = run.attempt + 1, run.fence + 1
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
