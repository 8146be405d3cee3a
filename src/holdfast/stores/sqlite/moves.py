"""cancel, pause, resume, rewind, retry_run: what people do to a run. Each has its guard in its own file."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import FINAL, Move, Status
from holdfast.records import Instant, Json, Run

from . import children, plans
from .database import Database, Row, text
from .rows import run_of
from .settling import Way, Whose
from .sql import statements
from .trail import TRAIL

_CANCEL, _PAUSE, _RESUME = statements("cancel"), statements("pause"), statements("resume")
_REWIND, _RETRY_RUN = statements("rewind"), statements("retry_run")
_GUARDS = {
    Move.CANCEL: _CANCEL["guard"],
    Move.PAUSE: _PAUSE["guard"],
    Move.RESUME: _RESUME["guard"],
    Move.REWIND: _REWIND["guard"],
    Move.RETRY_RUN: _RETRY_RUN["guard"],
}


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


Who = tuple[str | None, str]  # in which tenant, and by whom


def cancel(db: Database, now: Instant, run: UUID, who: Who, *, with_children: bool) -> Run:
    tenant, by = who
    row = _guarded(db, Move.CANCEL, run, tenant)
    if row[2] != Status.CANCELLED:
        children.cancel(db, now, row, by, children=with_children)
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
    status, pause_by, resume_to, kind, fence = _guarded(db, Move.RESUME, run, tenant)
    if status == Status.LEASED and pause_by is None:
        raise IllegalMove(run, Move.RESUME, Status.LEASED, "no pause is asked for")
    if status == Status.LEASED:
        db.run(_RESUME["withdraw"], (str(run),))
    elif kind == "plan":
        _resume_plan(Way(db, now, str(run), Whose(resume_to, kind, fence)), by)
    else:
        db.run(_RESUME["resume"], (now, str(run)))
        db.run(TRAIL, (str(run), "resumed", text({"by": by, "status": resume_to}), now))
    return _shown(db, run)


def _resume_plan(way: Way, by: str) -> None:
    """By its rows: what was decided meanwhile counts, and what is current and not yet open is opened."""
    entry = way.note("resumed", by=by)
    status = plans.apply(way, plans.come_to(way), counts_stay=True)
    entry["status"] = Status.PENDING if status in FINAL else status
    way.write()


def rewind(db: Database, now: Instant, run: UUID, step: str, who: Who, *, with_children: bool) -> Run:
    tenant, by = who
    _, kind, fence = _guarded(db, Move.REWIND, run, tenant)
    steps = _begun(db, run, kind)
    seq = next((seq for key, seq, *_ in steps if key == step), None)
    if seq is None:
        keys = ", ".join(key for key, *_ in steps)
        raise UnknownStep(f"run {run} has no step {step!r}; it has: {keys or 'none'}")
    gone = [row for row in steps if row[1] >= seq or row[2] == "cancelled"]
    way = Way(db, now, str(run), Whose(Status.PENDING, kind, fence + 1))
    _forget(way, gone, orphans=with_children)
    status = _begin_anew(way)
    way.note("rewound", step=step, forgotten=[key for key, *_ in gone], status=status, by=by)
    _go_on(way, status)
    return _shown(db, run)


def retry_run(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    _, error, kind, fence = _guarded(db, Move.RETRY_RUN, run, tenant)
    steps = _begun(db, run, kind)
    left = [key for key, _, status, *_ in steps if status != "succeeded"] if kind == "plan" else []
    blamed = left[0] if left else _blamed(error)
    gone = [row for row in steps if row[0] == blamed or row[2] == "cancelled"]
    way = Way(db, now, str(run), Whose(Status.PENDING, kind, fence + 1))
    _forget(way, gone, orphans=True)
    status = _begin_anew(way)
    way.note("retried", by=by, status=status, forgotten=[key for key, *_ in gone])
    _go_on(way, status)
    return _shown(db, run)


def _begun(db: Database, run: UUID, kind: str) -> list[Row]:
    """Key, seq, status and child of each step; of a plan, those up to the current one."""
    steps = db.all(_REWIND["steps"], (str(run),))
    if kind != "plan":
        return steps
    end = next((number for number, row in enumerate(steps) if row[2] != "succeeded"), len(steps))
    return steps[: end + 1]


def _begin_anew(way: Way) -> str:
    row = way.db.one(_REWIND["rewind"], (way.now, way.run))
    assert row is not None
    return str(row[0])


def _go_on(way: Way, status: str) -> None:
    """A plan's row that is current again may be a gate."""
    if way.is_plan and status == Status.PENDING:
        plans.apply(way, plans.come_to(way))
    way.write()


def _forget(way: Way, gone: list[Row], *, orphans: bool) -> None:
    """Drop steps, and make the events that only they consumed available again. A plan's rows begin anew."""
    db, run = way.db, way.run
    if gone:
        db.run(_REWIND["mark"], (run,))
        fence, number = db.one(_REWIND["last_item"], (run,)) or (0, 0)
        db.run(_REWIND["remember"], (fence, number, run))
    if orphans and any(row[3] is not None for row in gone):
        db.run(_REWIND["owe_orphans"], (run,))
    for key, *_ in gone:
        db.run(_REWIND["as_planned" if way.is_plan else "forget_step"], (run, key))
        db.run(_REWIND["forget_receipt"], (run, key))


def _blamed(error: Json | None) -> str | None:
    """The step that made the run fail, as its error names it."""
    decoded = msgspec.json.decode(error) if error is not None else None
    return decoded.get("step") if isinstance(decoded, dict) else None
