"""publish, present, absent: what can be run, and who is there to run it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.records import Definition, Instant, Presence

from .database import Database, text
from .sql import statements

_SQL = statements("publish")


def publish(db: Database, now: Instant, definitions: Sequence[Definition]) -> None:
    """The same again changes no row; the statement itself compares."""
    for each in definitions:
        args = (each.type, each.kind, each.max_attempts, each.timeout_seconds, each.description, now)
        db.run(_SQL["publish"], args)


def present(db: Database, now: Instant, presence: Presence) -> None:
    tenants = None if presence.tenants is None else text(presence.tenants)
    types, patterns = text(presence.types), text(presence.patterns)
    counts = presence.slots, presence.stragglers, text(presence.sinks)
    db.run(_SQL["present"], (presence.worker, types, patterns, tenants, *counts, now))


def absent(db: Database, worker: str) -> None:
    db.run(_SQL["absent"], (worker,))
