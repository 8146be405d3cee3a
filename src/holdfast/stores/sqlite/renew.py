"""renew: leases go on, each fenced like a commit's item; and the worker learns what happened meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.machine import claiming
from holdfast.machine.durations import micros
from holdfast.records import Instant, Lease, Renewal

from .database import Database
from .sql import statements
from .view import SqliteView

_SQL = statements("renew")


def renew(db: Database, now: Instant, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
    strays = strays_of(db, worker, leases)
    view, until = SqliteView(db, now), now + micros(lease_seconds)
    view.prefetch({str(lease.run): lease.run for lease in leases})
    held = tuple([claiming.renew(view, view.run(lease.run), lease, worker, until) for lease in leases])
    view.save()
    return Renewal(held=held, strays=strays)


def strays_of(db: Database, worker: str, leases: Sequence[Lease]) -> tuple[tuple[UUID, int], ...]:
    """What is leased to this worker and was not named: the reply to its claim was lost."""
    named = {(str(lease.run), lease.fence) for lease in leases}
    return tuple((UUID(row[0]), row[1]) for row in db.all(_SQL["strays"], (worker,)) if row not in named)
