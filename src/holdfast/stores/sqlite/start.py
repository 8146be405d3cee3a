"""start: record intents. The key is looked at before the id; an error is the answer of its item alone."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.errors import DuplicateRun, HoldfastError, KeyReused
from holdfast.records import DEFAULT_TENANT, MAX_ATTEMPTS, Instant, NewRun, Started
from holdfast.stores.durations import bounded, micros

from .database import Database, Row, text
from .sql import statements

_SQL = statements("start")
TRAIL = statements("trail")["trail"]

KEY_SEPARATOR = "\x1f"

Defaults = tuple[int | None, float | None, str]


def stored_key(tenant: str, key: str | None) -> str | None:
    """The default tenant's keys as given, others' scoped: one plain unique index serves all."""
    return key if key is None or tenant == DEFAULT_TENANT else f"{tenant}{KEY_SEPARATOR}{key}"


def shown_key(tenant: str, key: str | None) -> str | None:
    """The bare key."""
    return key if key is None or tenant == DEFAULT_TENANT else key.partition(KEY_SEPARATOR)[2]


def start(db: Database, now: Instant, runs: Sequence[NewRun]) -> list[Started | HoldfastError]:
    """One answer each, in order."""
    mark, fence = db.one(_SQL["mark"]), db.one(_SQL["fence"])
    assert mark is not None
    assert fence is not None
    defaults: dict[str, Defaults] = {}
    answers: list[Started | HoldfastError] = []
    for run in runs:
        if run.type not in defaults:
            defaults[run.type] = _defaults(db, run.type)
        answers.append(_start(db, now, run, defaults[run.type], (*mark, *fence)))
    return answers


def _defaults(db: Database, type_: str) -> Defaults:
    row = db.one(_SQL["definition"], (type_,))
    return (None, None, "code") if row is None else (row[0], row[1], row[2])


def _start(
    db: Database, now: Instant, run: NewRun, defaults: Defaults, marks: Row
) -> Started | HoldfastError:
    key = stored_key(run.tenant, run.key)
    if key is not None and (there := db.one(_SQL["key"], (key,))) is not None:
        same = there[1] == run.digest
        return Started(UUID(there[0]), created=False) if same else KeyReused(run.key or "", UUID(there[0]))
    db.run(_SQL["start"], _row(run, key, defaults, marks, now))
    if not db.changes():
        return DuplicateRun(run.id)
    db.run(TRAIL, (str(run.id), "created", text({"type": run.type}), now))
    return Started(run.id, created=True)


def _row(run: NewRun, key: str | None, defaults: Defaults, marks: Row, now: Instant) -> Row:
    max_attempts, timeout, kind = defaults
    if run.timeout_seconds is not None:
        timeout = run.timeout_seconds
    run_at = run.run_at if run.run_at is not None else now + micros(run.delay_seconds or 0)
    return (
        str(run.id), run.tenant, run.type, kind, run.params, run.priority, run_at, key, run.digest,
        run.max_attempts if run.max_attempts is not None else max_attempts or MAX_ATTEMPTS,
        None if run.parent is None else str(run.parent), run.limit_key, run.labels, run.budget,
        None if timeout is None else bounded(timeout), None if timeout is None else now + micros(timeout),
        None if run.ttl_seconds is None else bounded(run.ttl_seconds), *marks, now,
    )  # fmt: skip
