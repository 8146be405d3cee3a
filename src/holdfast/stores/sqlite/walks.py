"""Walks over the pending runs: from priority to priority by the index, and in each as far as it is due.

A walk is a kind and what it is of: a type (""), a lane (of a tenant, a type and a limit_key or none), or all
of a tenant and type that have a key ("keyed_").
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.records import Instant

from .database import Database, Row
from .sql import statements

_SQL = statements("claim")

Walk = tuple[str, tuple[str | None, ...]]


def of_type(type_: str) -> Walk:
    return "", (type_,)


def lane(tenant: str, type_: str, key: str | None = None) -> Walk:
    return "lane_", (tenant, type_, key)


def keyed(tenant: str, type_: str) -> Walk:
    return "keyed_", (tenant, type_)


def all_of(tenant: str | None, type_: str) -> list[Walk]:
    """What has to be walked for all runs of a type, or of a tenant's."""
    return [of_type(type_)] if tenant is None else [lane(tenant, type_), keyed(tenant, type_)]


def first(db: Database, tenant: str | None, type_: str) -> Row | None:
    """The first priority, the mark of the limits that are set, and of a tenant whether runs have a key."""
    if tenant is None:
        return db.one(_SQL["first"], (type_,))
    return db.one(_SQL["lane_first"], {"tenant": tenant, "type": type_})


def opened(
    db: Database, now: Instant, tenant: str | None, type_: str, begin: Row, *, named: bool = False
) -> list[Iterator[Row]]:
    """The due runs of a type, or of a tenant's; `begin` is what `first` has answered."""
    if tenant is None:
        return [due(db, now, of_type(type_), begin[0], named=named)]
    walk, *keyed = all_of(tenant, type_)
    streams = [due(db, now, walk, begin[0], named=named)] if begin[0] is not None else []
    return streams + [due(db, now, one, named=named) for one in keyed if begin[2]]


def due(
    db: Database, now: Instant, walk: Walk, begin: int | None = None, *, named: bool = False
) -> Iterator[Row]:
    """Due runs in their order, as (priority, run_at, id, crashes); named: with type, tenant and key.

    `begin`: the first priority, where it is known. Cursors of their own: several walks are read side by
    side, and none further than needed.
    """
    kind, of = walk
    sql = _SQL[f"{kind}due_named" if named and not kind else f"{kind}due"]
    for priority in priorities(db, walk, begin):
        yield from db.connection.execute(sql, (*of, priority, now))


def coming(db: Database, walk: Walk, priority: int) -> Iterator[Row]:
    """All pending runs of one priority, due or not, by their time; named."""
    kind, of = walk
    return db.connection.execute(_SQL[f"{kind}due" if kind else "due_named"], (*of, priority, 1 << 62))


def priorities(db: Database, walk: Walk, begin: int | None = None) -> Iterator[int]:
    """Those at which anything is pending, due or not; a loose walk over the index."""
    kind, of = walk
    sql = _SQL[f"{kind}next_priority"]
    if begin is None:
        row = db.one(sql, (*of, -1))
        begin = None if row is None else row[0]
    while begin is not None:
        yield begin
        row = db.one(sql, (*of, begin))
        begin = None if row is None else row[0]


def next_run_at(db: Database, walk: Walk) -> Instant | None:
    """When the first pending run of a walk is due."""
    kind, of = walk
    rows = (db.one(_SQL[f"{kind}next_run_at"], (*of, priority)) for priority in priorities(db, walk))
    return min((row[0] for row in rows if row is not None and row[0] is not None), default=None)
