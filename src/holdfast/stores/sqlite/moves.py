"""cancel, pause, resume, rewind, retry_run: what people do to a run. Each has its guard in its own file."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import Move, Status
from holdfast.records import Instant, Json, Run

from .database import Database, Row, text
from .rows import run_of
from .sql import statements
from .start import TRAIL

_CANCEL, _PAUSE, _RESUME = statements("cancel"), statements("pause"), statements("resume")
_REWIND, _RETRY_RUN = statements("rewind"), statements("retry_run")
_GUARDS = {
    Move.CANCEL: _CANCEL["guard"],
    Move.PAUSE: _PAUSE["guard"],
    Move.RESUME: _RESUME["guard"],
    Move.REWIND: _REWIND["guard"],
    Move.RETRY_RUN: _RETRY_RUN["guard"],
}
_CANCEL_STEPS = statements("commit")["cancel_steps"]


def _guarded(db: Database, move: Move, run: UUID, tenant: str | None) -> Row:
    row = db.one(_GUARDS[move], (str(run), tenant))
    if row is not None:
        return row
    now_is = run_of(db, str(run))
    if now_is is None or tenant not in {None, now_is.tenant}:
        raise UnknownRun(run)
    raise IllegalMove(run, move, now_is.status)


def _shown(db: Database, run: UUID) -> Run:
    shown = run_of(db, str(run))
    assert shown is not None
    return shown


def cancel(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    (status,) = _guarded(db, Move.CANCEL, run, tenant)
    if status != Status.CANCELLED:
        db.run(_CANCEL["cancel"], (now, str(run)))
        db.run(_CANCEL_STEPS, (now, str(run)))
        db.run(TRAIL, (str(run), "cancelled", text({"by": by}), now))
    return _shown(db, run)


def pause(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    (status,) = _guarded(db, Move.PAUSE, run, tenant)
    if status == Status.LEASED:
        db.run(_PAUSE["ask"], (by, str(run)))
    elif status != Status.PAUSED:
        db.run(_PAUSE["pause"], (now, str(run)))
        db.run(TRAIL, (str(run), "paused", text({"by": by}), now))
    return _shown(db, run)


def resume(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    status, pause_by, resume_to = _guarded(db, Move.RESUME, run, tenant)
    if status == Status.LEASED and pause_by is None:
        raise IllegalMove(run, Move.RESUME, Status.LEASED, "no pause is asked for")
    if status == Status.LEASED:
        db.run(_RESUME["withdraw"], (str(run),))
    else:
        db.run(_RESUME["resume"], (now, str(run)))
        db.run(TRAIL, (str(run), "resumed", text({"by": by, "status": resume_to}), now))
    return _shown(db, run)


def rewind(db: Database, now: Instant, run: UUID, step: str, who: tuple[str | None, str]) -> Run:
    tenant, by = who
    _guarded(db, Move.REWIND, run, tenant)
    steps = db.all(_REWIND["steps"], (str(run),))
    seq = next((seq for key, seq, _ in steps if key == step), None)
    if seq is None:
        keys = ", ".join(key for key, *_ in steps)
        raise UnknownStep(f"run {run} has no step {step!r}; it has: {keys or 'none'}")
    gone = [key for key, at, status in steps if at >= seq or status == "cancelled"]
    _forget(db, str(run), gone)
    status = _begin_anew(db, now, run)
    data = {"step": step, "forgotten": gone, "status": status, "by": by}
    db.run(TRAIL, (str(run), "rewound", text(data), now))
    return _shown(db, run)


def retry_run(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    _, error = _guarded(db, Move.RETRY_RUN, run, tenant)
    blamed = _blamed(error)
    steps = db.all(_REWIND["steps"], (str(run),))
    gone = [key for key, _, status in steps if key == blamed or status == "cancelled"]
    _forget(db, str(run), gone)
    status = _begin_anew(db, now, run)
    db.run(TRAIL, (str(run), "retried", text({"by": by, "status": status, "forgotten": gone}), now))
    return _shown(db, run)


def _begin_anew(db: Database, now: Instant, run: UUID) -> str:
    row = db.one(_REWIND["rewind"], (now, str(run)))
    assert row is not None
    return str(row[0])


def _forget(db: Database, run: str, keys: list[str]) -> None:
    """Drop steps, and make the events that only they consumed available again."""
    if keys:
        db.run(_REWIND["mark"], (run,))
        fence, number = db.one(_REWIND["last_item"], (run,)) or (0, 0)
        db.run(_REWIND["remember"], (fence, number, run))
    for key in keys:
        db.run(_REWIND["forget_step"], (run, key))
        db.run(_REWIND["forget_receipt"], (run, key))


def _blamed(error: Json | None) -> str | None:
    """The step that made the run fail, as its error names it."""
    decoded = msgspec.json.decode(error) if error is not None else None
    return decoded.get("step") if isinstance(decoded, dict) else None
