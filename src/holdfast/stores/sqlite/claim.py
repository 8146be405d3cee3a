"""claim: the due runs of some types, best first, leased in one commit."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from holdfast.records import Ask, Claim, Instant
from holdfast.stores.durations import micros

from .database import Database, Row, text
from .rows import steps_of
from .sql import statements

_SQL = statements("claim")
_BOTH = 2  # a scope of tenant and type


def candidates(db: Database, now: Instant, ask: Ask) -> Iterator[Row]:
    """Due runs as (priority, run_at, id, crashes), best first, those left out that crash too often."""
    streams = [_due(db, now, scope) for scope in scopes(ask.types, ask.tenants)]
    ordered = streams[0] if len(streams) == 1 else heapq.merge(*streams)
    yield from _spared(ordered, ask.crashed) if ask.crashed else ordered


def scopes(types: Sequence[str], tenants: Sequence[str] | None) -> list[tuple[str, ...]]:
    """What is walked on its own: each type, or each type of each tenant; a name given twice counts once."""
    once = dict.fromkeys(types)
    if tenants is None:
        return [(each,) for each in once]
    return [(tenant, each) for tenant in dict.fromkeys(tenants) for each in once]


def _due(db: Database, now: Instant, scope: tuple[str, ...]) -> Iterator[Row]:
    # Cursors of their own: several types are read side by side, and none further than needed.
    sql = _SQL["tenant_due" if len(scope) == _BOTH else "due"]
    for priority in _priorities(db, scope):
        yield from db.connection.execute(sql, (*scope, priority, now))


def _priorities(db: Database, scope: tuple[str, ...]) -> Iterator[int]:
    """Those at which anything of that scope is pending, due or not; a loose walk over the index."""
    sql = _SQL["tenant_next_priority" if len(scope) == _BOTH else "next_priority"]
    row = db.one(sql, (*scope, -1))
    while row is not None:
        yield row[0]
        row = db.one(sql, (*scope, row[0]))


def next_run_at(db: Database, scope: tuple[str, ...]) -> Instant | None:
    """When the first pending run of that scope is due."""
    sql = _SQL["tenant_next_run_at" if len(scope) == _BOTH else "next_run_at"]
    rows = (db.one(sql, (*scope, priority)) for priority in _priorities(db, scope))
    return min((row[0] for row in rows if row is not None and row[0] is not None), default=None)


def _spared(rows: Iterator[Row], crashed: tuple[int, ...]) -> Iterator[Row]:
    # held[k - 1]: how many were taken that crashed k times or more. Above the list its last one counts.
    held = [0] * len(crashed)
    for row in rows:
        levels = min(row[3], len(crashed))
        if any(held[level] >= crashed[level] for level in range(levels)):
            continue
        for level in range(levels):
            held[level] += 1
        yield row


def found(db: Database, now: Instant, ask: Ask) -> bool:
    """Whether a claim would find anything; a look, no write."""
    return ask.limit > 0 and bool(list(islice(candidates(db, now, ask), 1)))


def claim(db: Database, now: Instant, ask: Ask) -> list[Claim]:
    """Take them. The candidates are read to the end first: no cursor walks an index that changes."""
    chosen = [row[2] for row in islice(candidates(db, now, ask), ask.limit)]
    values = {
        "runs": text(chosen),
        "worker": ask.worker,
        "now": now,
        "until": now + micros(ask.lease_seconds),
    }
    claimed = {row[0]: row for row in db.all(_SQL["claim"], values)}
    by = text(ask.worker)
    trail = [
        (run, f'{{"worker":{by},"attempt":{claimed[run][5]},"fence":{claimed[run][4]}}}') for run in chosen
    ]
    db.run(_SQL["leased"], {"rows": text(trail), "now": now})
    return [_claim(db, claimed[run]) for run in chosen]


def _claim(db: Database, row: Row) -> Claim:
    run = row[0]
    again = row[11] > 1  # a row that only this claim has changed since its start has neither steps nor logs
    return Claim(
        id=UUID(run), type=row[1], tenant=row[2], params=row[3], fence=row[4], attempt=row[5], crashes=row[6],
        max_attempts=row[7], created_at=row[8], lease_until=row[9], timeout_at=row[10],
        steps=tuple(steps_of(db, run)) if again else (), logs=_logs(db, run) if again else 0,
    )  # fmt: skip


def _logs(db: Database, run: str) -> int:
    row = db.one(_SQL["logs"], (run,))
    return row[0] if row is not None else 0
