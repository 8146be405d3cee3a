"""publish, present and absent: definitions of workflows, and the presence of workers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.machine.durations import bounded
from holdfast.machine.plans import refuse_changed
from holdfast.records import Definition, Instant, Json, PlanStep, Presence

from .connection.database import Database, text
from .rows import definition
from .sql import statements

_SQL = statements("publish")


def plan_text(steps: Sequence[PlanStep]) -> Json | None:
    """Return the steps of a plan as JSON: as the definition stores them, and as rows are made from them."""
    if not steps:
        return None
    return text(
        [msgspec.structs.replace(one, timeout_seconds=_bounded(one.timeout_seconds)) for one in steps]
    )


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else bounded(seconds)


def publish(db: Database, now: Instant, definitions: Sequence[Definition]) -> None:
    """Store definitions. An unchanged definition changes no row: the statement compares."""
    plans = [plan_text(each.steps) for each in definitions]
    for each, plan in zip(definitions, plans, strict=True):
        row = db.one(_SQL["published"], (each.type,))
        if row is not None and (row[1], row[5]) != (each.kind, plan):
            refuse_changed(definition(row), each)
    for each, plan in zip(definitions, plans, strict=True):
        defaults = (each.max_attempts, each.timeout_seconds, each.budget, int(each.covers_children))
        schemas = (each.params_schema, each.result_schema)
        db.run(_SQL["publish"], (each.type, each.kind, *defaults, each.description, plan, *schemas, now))


def present(db: Database, now: Instant, presence: Presence) -> None:
    tenants = None if presence.tenants is None else text(presence.tenants)
    types, patterns = text(presence.types), text(presence.patterns)
    has = presence.slots, presence.stragglers, text(presence.sinks), text(presence.lacking), presence.library
    db.run(_SQL["present"], (presence.worker, types, patterns, tenants, presence.runtime, *has, now))


def absent(db: Database, worker: str) -> None:
    db.run(_SQL["absent"], (worker,))
