"""delete, restore, stuck: a run is hidden, as it was, and shown again; and what should not be."""

from __future__ import annotations

from uuid import UUID

from holdfast.errors import UnknownRun
from holdfast.lifecycle import Status
from holdfast.records import Instant, Run

from .database import Database, text
from .rows import run_or_deleted
from .sql import statements
from .trail import TRAIL

_DELETE, _RESTORE, _STUCK = statements("delete"), statements("restore"), statements("stuck")["stuck"]


def delete(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    found = db.one(_DELETE["guard"], (str(run), tenant))
    if found is not None:
        _hide(db, now, str(run), found, by)
    return _shown(db, run, tenant)


def _hide(db: Database, now: Instant, run: str, found: tuple[str, str | None], by: str) -> None:
    status, pause_by = found
    if status != Status.LEASED:
        db.run(_DELETE["hide"], (now, run))
        db.run(TRAIL, (run, "deleted", text({"by": by}), now))
        return
    db.run(_DELETE["fence_off"], (now, run))
    db.run(TRAIL, (run, "deleted", text({"by": by, "status": "pending"}), now))
    if pause_by is not None:
        db.run(TRAIL, (run, "paused", text({"by": pause_by}), now))


def restore(db: Database, now: Instant, run: UUID, tenant: str | None, by: str) -> Run:
    if db.one(_RESTORE["guard"], (str(run), tenant)) is not None:
        db.run(_RESTORE["restore"], (now, str(run)))
        db.run(TRAIL, (str(run), "restored", text({"by": by}), now))
    return _shown(db, run, tenant)


def _shown(db: Database, run: UUID, tenant: str | None) -> Run:
    shown = run_or_deleted(db, str(run))
    if shown is None or tenant not in {None, shown.tenant}:
        raise UnknownRun(run)
    return shown


def stuck(db: Database, limit: int) -> list[UUID]:
    return [UUID(run) for (run,) in db.all(_STUCK, (max(0, limit),))]
