"""start: record intents. The key is looked at before the id; an error is the answer of its item alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.errors import DuplicateRun, HoldfastError, KeyReused, UnknownRun
from holdfast.lifecycle import Status, StepKind
from holdfast.machine.durations import bounded, micros
from holdfast.records import MAX_ATTEMPTS, Instant, Json, NewRun, Started

from . import plans
from .database import Database, Row, text
from .keys import stored_key
from .settling import Way, Whose
from .sql import statements
from .trail import TRAIL

_SQL = statements("start")


class Known(NamedTuple):
    """What is published of a type. Of a plan: its steps, and what `created` says of them."""

    max_attempts: int | None = None
    timeout_seconds: float | None = None
    kind: str = "code"
    budget: int | None = None
    plan: Json | None = None
    names: tuple[str, ...] = ()
    begins: str = StepKind.TASK  # with a step of this kind


def start(
    db: Database, now: Instant, runs: Sequence[NewRun], by: str | None = None
) -> list[Started | HoldfastError]:
    """One answer each, in order. `by`: the run whose commit starts them."""
    starts = Starts(db, now, by)
    fence = starts.fence()
    return [starts.start(run, fence) for run in runs]


def follow(db: Database, before: str, runs: Sequence[NewRun]) -> None:
    """Of the runs that a child starts with its end, the one it goes on as takes its place."""
    for run in runs:
        if run.parent_step is not None and run.parent is not None:
            db.run(_SQL["follow"], (str(run.id), str(run.parent), run.parent_step, before))


class Starts:
    """Any number of starts in one transaction: what they share is looked up once."""

    def __init__(self, db: Database, now: Instant, by: str | None = None) -> None:
        mark = db.one(_SQL["mark"])
        assert mark is not None
        self._db, self._now, self._mark, self._by = db, now, mark[0], by
        self._known: dict[str, Known] = {}

    def fence(self) -> int:
        """Where the fence of a run begins that is started now."""
        row = self._db.one(_SQL["fence"])
        assert row is not None
        return int(row[0])

    def start(self, run: NewRun, fence: int) -> Started | HoldfastError:
        db, key = self._db, stored_key(run.tenant, run.key)
        if key is not None and (there := db.one(_SQL["key"], (key,))) is not None:
            same = there[1] == run.digest
            return (
                Started(UUID(there[0]), created=False) if same else KeyReused(run.key or "", UUID(there[0]))
            )
        if run.parent is not None and not self._has_parent(run, str(run.parent)):
            return (
                UnknownRun(run.parent) if db.one(_SQL["id"], (str(run.id),)) is None else DuplicateRun(run.id)
            )
        known = self._known.get(run.type) or self._look_up(run.type)
        row = self._row(run, key, known, fence)
        db.run(_SQL["start"], row)
        if not db.changes():
            return DuplicateRun(run.id)
        told = {"type": run.type, "steps": known.names} if known.names else {"type": run.type}
        db.run(TRAIL, (row[0], "created", text(told), self._now))
        if known.plan is not None:
            self._begin(row, known, fence)
        return Started(run.id, created=True)

    def _has_parent(self, run: NewRun, parent: str) -> bool:
        """What a child goes on as is a child of the same parent, though that may be gone by now."""
        if self._db.one(_SQL["parent"], (parent, run.tenant)) is not None:
            return True
        return self._by is not None and self._db.one(_SQL["kin"], (self._by, parent, run.tenant)) is not None

    def _look_up(self, type_: str) -> Known:
        row = self._db.one(_SQL["definition"], (type_,))
        known = Known() if row is None else Known(*row)
        if known.plan is not None:
            steps = msgspec.json.decode(known.plan)
            names, begins = tuple(one["name"] for one in steps), steps[0].get("kind", StepKind.TASK)
            known = known._replace(names=names, begins=begins)
        self._known[type_] = known
        return known

    def _row(self, run: NewRun, key: str | None, known: Known, fence: int) -> Row:
        timeout = known.timeout_seconds if run.timeout_seconds is None else run.timeout_seconds
        run_at = run.run_at if run.run_at is not None else self._now + micros(run.delay_seconds or 0)
        return (
            str(run.id), run.tenant, run.type, known.kind, run.params, run.priority, run_at, key, run.digest,
            run.max_attempts if run.max_attempts is not None else known.max_attempts or MAX_ATTEMPTS,
            None if run.parent is None else str(run.parent), run.parent_step, run.limit_key, run.labels,
            known.budget if run.budget is None else run.budget,
            None if timeout is None else bounded(timeout),
            None if timeout is None else self._now + micros(timeout),
            None if run.ttl_seconds is None else bounded(run.ttl_seconds), self._mark, fence, self._now,
        )  # fmt: skip

    def _begin(self, row: Row, known: Known, fence: int) -> None:
        """All steps of a plan; one that begins with a task waits for a worker as it is."""
        assert known.plan is not None
        run, tenant, max_attempts = row[0], row[1], row[9]
        plans.insert(self._db, run, known.plan, tenant, max_attempts)
        if known.begins != StepKind.TASK:
            way = Way(self._db, self._now, run, Whose(Status.PENDING, known.kind, fence))
            plans.apply(way, plans.come_to(way))
            way.write()
