"""What a keeper does: expire, time_out, lapse. A slice each, so that no commit is long."""

from __future__ import annotations

from uuid import UUID

from holdfast.backoff import crash_delay
from holdfast.lifecycle import Status
from holdfast.records import Error, Instant
from holdfast.stores.durations import micros

from .database import Database, Row, text
from .sql import statements
from .start import TRAIL
from .waits import open_wait, settle

_EXPIRE, _TIME_OUT, _LAPSE = statements("expire"), statements("time_out"), statements("lapse")
_CANCEL_STEPS = statements("commit")["cancel_steps"]


Done = tuple[int, list[UUID]]  # how many, and the runs among them that were failed


def expire(db: Database, now: Instant, limit: int) -> Done:
    """Leases that ran out: to the queue, into a pause, or failed at the crash cap."""
    past = db.all(_EXPIRE["guard"], (now, limit))
    return len(past), [UUID(row[0]) for row in past if _expire(db, now, row)]


def _expire(db: Database, now: Instant, row: Row) -> bool:
    """Whether that was its end."""
    run, worker, crashes, max_crashes, pause_by = row
    crashes += 1
    db.run(TRAIL, (run, "lease_expired", text({"worker": worker, "crashes": crashes}), now))
    message = f"the lease of {worker} ran out"
    blame = _blame("lease_expired", message)
    if crashes >= max_crashes:
        db.run(_EXPIRE["fail"], (*blame, now, run))
        _end(db, now, run, "lease_expired", message)
        return True
    status, resume_to = (Status.PENDING, None) if pause_by is None else (Status.PAUSED, Status.PENDING)
    db.run(_EXPIRE["requeue"], (status, resume_to, now + micros(crash_delay(crashes)), *blame, now, run))
    if pause_by is not None:
        db.run(TRAIL, (run, "paused", text({"by": pause_by}), now))
    return False


def time_out(db: Database, now: Instant, limit: int) -> Done:
    """Runs whose own time is over: failed, wherever they are."""
    late = db.all(_TIME_OUT["guard"], (now, limit))
    for run, seconds in late:
        message = f"the run did not end within {seconds:g} s"
        db.run(_TIME_OUT["fail"], (*_blame("timeout", message), now, run))
        db.run(TRAIL, (run, "timed_out", "{}", now))
        _end(db, now, run, "timeout", message)
    return len(late), [UUID(run) for run, _ in late]


def _blame(kind: str, message: str) -> tuple[str, str]:
    return text(Error(kind=kind, message=message)), f"{kind}: {message}"


def _end(db: Database, now: Instant, run: str, kind: str, message: str) -> None:
    db.run(_CANCEL_STEPS, (now, run))
    db.run(TRAIL, (run, "failed", text({"kind": kind, "message": message}), now))


def lapse(db: Database, now: Instant, limit: int) -> Done:
    """Waits whose time has come, first due first."""
    due = db.all(_LAPSE["due"], (now, limit))
    for run, *wait in due:
        settle(db, now, run, open_wait(*wait))
    return len(due), []


def next_chore(db: Database) -> Instant | None:
    """When a keeper may next find something: a lease ends after its instant, all else is due at it."""
    lease = db.one(_EXPIRE["next"])
    ends = None if lease is None or lease[0] is None else lease[0] + 1
    others = (db.one(_TIME_OUT["next"]), db.one(_LAPSE["next"]), db.one(_LAPSE["next_event"]))
    times = [ends, *(row[0] for row in others if row is not None)]
    return min((at for at in times if at is not None), default=None)
