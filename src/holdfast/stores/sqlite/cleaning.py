"""stuck: runs that nothing could ever wake, which should not be."""

from __future__ import annotations

from uuid import UUID

from .database import Database
from .sql import statements

_STUCK = statements("stuck")["stuck"]


def stuck(db: Database, limit: int) -> list[UUID]:
    return [UUID(run) for (run,) in db.all(_STUCK, (max(0, limit),))]
