"""renew: leases go on, each fenced like a commit's item; and the worker learns what happened meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import Answer, Held, Instant, Lease, Renewal

from .database import Database, text
from .rows import news_since
from .sql import statements
from .trail import TRAIL

_SQL = statements("renew")


def renew(db: Database, now: Instant, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
    strays = strays_of(db, worker, leases)
    until = now + micros(lease_seconds)
    return Renewal(held=tuple(_renew(db, now, worker, lease, until) for lease in leases), strays=strays)


def strays_of(db: Database, worker: str, leases: Sequence[Lease]) -> tuple[tuple[UUID, int], ...]:
    """What is leased to this worker and was not named: the reply to its claim was lost."""
    named = {(str(lease.run), lease.fence) for lease in leases}
    return tuple((UUID(row[0]), row[1]) for row in db.all(_SQL["strays"], (worker,)) if row not in named)


def _renew(db: Database, now: Instant, worker: str, lease: Lease, until: Instant) -> Held:
    run = str(lease.run)
    held = db.one(_SQL["held"], (run, lease.fence, now))
    if held is None:
        row = db.one(_SQL["status"], (run,))
        return Held(answer=Answer.CANCELLED if row == (Status.CANCELLED,) else Answer.LOST)
    begun = lease.started_at if held[1] != lease.fence else None
    db.run(_SQL["renew"], (until, lease.progress, begun, run, lease.fence, now))
    if begun is not None:
        db.run(TRAIL, (run, "started", text({"at": begun}), now))
    if lease.heartbeat:
        db.run(TRAIL, (run, "heartbeat", text({"worker": worker}), now))
    settled, more = news_since(db, run, lease.known)
    return Held(answer=Answer.APPLIED, pause_asked=held[0] is not None, settled=settled, more=more)
