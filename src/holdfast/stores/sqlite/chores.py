"""What a keeper does: expire, time_out, lapse. A slice each, so that no commit is long."""

from __future__ import annotations

from uuid import UUID

from holdfast.backoff import crash_delay
from holdfast.bounds import BATCH_BYTES
from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import Chore, Error, Instant, Json

from . import plans
from .database import Database, Row, text
from .settling import Way, Whose, open_wait
from .sql import statements
from .trail import TRAIL
from .waits import settle

_EXPIRE, _TIME_OUT, _LAPSE = statements("expire"), statements("time_out"), statements("lapse")

Done = tuple[int, list[UUID]]  # how many, and the runs among them that were failed


def expire(db: Database, now: Instant, limit: int) -> Done:
    """Leases that ran out: to the queue, into a pause, or failed at the crash cap."""
    past = db.all(_EXPIRE["guard"], (now, limit))
    return len(past), [UUID(row[0]) for row in past if _expire(db, now, row)]


def _expire(db: Database, now: Instant, row: Row) -> bool:
    """Whether that was its end."""
    run, worker, crashes, max_crashes, pause_by, kind, attempt = row
    crashes += 1
    db.run(TRAIL, (run, "lease_expired", text({"worker": worker, "crashes": crashes}), now))
    message = f"the lease of {worker} ran out"
    blame = _blame("lease_expired", message)
    if crashes >= max_crashes:
        db.run(_EXPIRE["fail"], (*blame, now, run))
        _end(Way(db, now, run, Whose(Status.LEASED, kind, 0)), attempt, blame[0], ("lease_expired", message))
        return True
    status, resume_to = (Status.PENDING, None) if pause_by is None else (Status.PAUSED, Status.PENDING)
    db.run(_EXPIRE["requeue"], (status, resume_to, now + micros(crash_delay(crashes)), *blame, now, run))
    if pause_by is not None:
        db.run(TRAIL, (run, "paused", text({"by": pause_by}), now))
    return False


def time_out(db: Database, now: Instant, limit: int) -> Done:
    """Runs whose own time is over: failed, wherever they are."""
    late = db.all(_TIME_OUT["guard"], (now, limit))
    for run, seconds, status, kind, attempt in late:
        message = f"the run did not end within {seconds:g} s"
        blame = _blame("timeout", message)
        db.run(_TIME_OUT["fail"], (*blame, now, run))
        way = Way(db, now, run, Whose(status, kind, 0))
        way.note("timed_out")
        _end(way, attempt, blame[0], ("timeout", message))
    return len(late), [UUID(run) for run, *_ in late]


def _blame(kind: str, message: str) -> tuple[str, str]:
    return text(Error(kind=kind, message=message)), f"{kind}: {message}"


def _end(way: Way, attempt: int, error: Json, why: tuple[str, str]) -> None:
    plans.end_steps(way, Status.FAILED, error, attempt)
    way.note("failed", kind=why[0], message=why[1])
    way.write()


def lapse(db: Database, now: Instant, limit: int, *, wait_timeouts: bool = True) -> tuple[list[str], bool]:
    """Waits whose time has come, first due first: the runs of those that were settled, and whether more may
    be left. Fewer than `limit` when the values are large."""
    due = db.all(_LAPSE["due" if wait_timeouts else "due_but_plans"], (now, limit))
    lapsed, copied = list[str](), 0
    for run, *wait in due:
        settled = settle(db, now, run, open_wait(*wait))
        lapsed.append(run)
        copied += settled.copied if settled is not None else 0
        if copied >= BATCH_BYTES:
            return lapsed, True
    return lapsed, len(due) == limit


def is_due(db: Database, now: Instant, chore: Chore, *, wait_timeouts: bool = True) -> bool:
    """Whether one chore would find something; a look, no write."""
    at = next_at(db, chore, wait_timeouts=wait_timeouts)
    return at is not None and at <= now


def next_at(db: Database, chore: Chore, *, wait_timeouts: bool = True) -> Instant | None:
    """When a chore may next find something: a lease ends after its instant, all else is due at it."""
    match chore:
        case Chore.EXPIRE:
            row = db.one(_EXPIRE["next"])
        case Chore.TIME_OUT:
            row = db.one(_TIME_OUT["next"])
        case Chore.LAPSE:
            row = db.one(_LAPSE["next" if wait_timeouts else "next_but_plans"])
        case _:
            row = db.one(_LAPSE["next_news"])
    at: Instant | None = None if row is None else row[0]
    return at + 1 if at is not None and chore is Chore.EXPIRE else at
