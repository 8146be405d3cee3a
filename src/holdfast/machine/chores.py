"""expire and time_out: a keeper ends leases and runs whose time is over. No user code is needed."""

from __future__ import annotations

from holdfast.backoff import crash_delay
from holdfast.lifecycle import Status

from . import claiming, ending
from .durations import micros
from .view import R, View


def expire(view: View[R], run: R) -> None:
    """expire: the lease has expired. crashes + 1, fence + 1, lease cleared, error of kind lease_expired.

    At max_crashes: failed (trail lease_expired, failed). With a requested pause: paused (trail lease_expired,
    paused). Else pending at now + crash_delay(crashes) (trail lease_expired).
    """
    worker, asked_by = run.leased_by, run.pause_asked_by
    run.crashes, run.fence = run.crashes + 1, run.fence + 1
    run.let_go()
    view.note(run, "lease_expired", worker=worker, crashes=run.crashes)
    message = f"the lease of {worker} ran out"
    run.blame("lease_expired", message)
    if run.crashes >= run.max_crashes:
        ending.fail(view, run, "lease_expired", message)
        return
    run.status, run.run_at = Status.PENDING, view.now + micros(crash_delay(run.crashes))
    if asked_by is not None:
        run.pause(Status.PENDING, asked_by)
        view.note(run, "paused", by=asked_by)


def time_out(view: View[R], run: R) -> None:
    """time_out: the timeout of the run has passed: failed, kind timeout, fence + 1. Trail: timed_out,
    failed."""
    claiming.interrupt(view, run)
    run.fence += 1
    view.note(run, "timed_out")
    message = f"the run did not end within {run.timeout_seconds:g} s"
    run.blame("timeout", message)
    ending.fail(view, run, "timeout", message)
