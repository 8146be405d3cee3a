"""Walks: due runs in queue order, from priority to priority by an index.

A walk is a kind and its values. The kinds are: a type (""), a lane ("lane_": tenant, type, limit_key or
none), and all runs of a tenant and type that have a key ("keyed_"). A kind is the prefix of its statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from holdfast.records import Ask, Instant
from holdfast.stores.sqlite.connection.database import Database, Row
from holdfast.stores.sqlite.sql import statements

_SQL = statements("claiming/claim")

Walk = tuple[str, tuple[str | None, ...]]


def scopes(ask: Ask) -> list[tuple[str | None, str]]:
    """Return the tenants and types to walk, each pair once. Tenant None: all tenants of the type."""
    types, tenants = dict.fromkeys(ask.types), dict.fromkeys(ask.tenants or ())
    return [(None, each) for each in types] if ask.tenants is None else list(product(tenants, types))


def of_type(type_: str) -> Walk:
    return "", (type_,)


def lane(tenant: str, type_: str, key: str | None = None) -> Walk:
    return "lane_", (tenant, type_, key)


def keyed(tenant: str, type_: str) -> Walk:
    return "keyed_", (tenant, type_)


def all_of(tenant: str | None, type_: str) -> list[Walk]:
    """Return the walks that cover all runs of a type, or of a tenant and type."""
    return [of_type(type_)] if tenant is None else [lane(tenant, type_), keyed(tenant, type_)]


def first(db: Database, tenant: str | None, type_: str) -> Row | None:
    """Return the first priority, the revision of the limits, and for a tenant whether runs have a key."""
    if tenant is None:
        return db.one(_SQL["first"], (type_,))
    return db.one(_SQL["lane_first"], {"tenant": tenant, "type": type_})


def opened(
    db: Database, now: Instant, tenant: str | None, type_: str, begin: Row, *, named: bool = False
) -> list[Iterator[Row]]:
    """Return streams of the due runs of a type, or of a tenant and type. `begin` is the answer of `first`."""
    if tenant is None:
        return [due(db, now, of_type(type_), begin[0], named=named)]
    walk, *keyed = all_of(tenant, type_)
    streams = [due(db, now, walk, begin[0], named=named)] if begin[0] is not None else []
    return streams + [due(db, now, one, named=named) for one in keyed if begin[2]]


def due(
    db: Database, now: Instant, walk: Walk, begin: int | None = None, *, named: bool = False
) -> Iterator[Row]:
    """Yield due runs in queue order as (priority, run_at, id, crashes). `named` adds type, tenant and key.

    `begin`: the first priority, if it is known. Each walk has its own cursor, because several walks are read
    side by side, and none further than needed.
    """
    kind, of = walk
    sql = _SQL[f"{kind}due_named" if named and not kind else f"{kind}due"]
    for priority in priorities(db, walk, begin):
        yield from db.connection.execute(sql, (*of, priority, now))


def coming(db: Database, walk: Walk, priority: int) -> Iterator[Row]:
    """Return all pending runs of one priority, due or not, by time, with their names."""
    kind, of = walk
    return db.connection.execute(_SQL[f"{kind}due" if kind else "due_named"], (*of, priority, 1 << 62))


def priorities(db: Database, walk: Walk, begin: int | None = None) -> Iterator[int]:
    """Yield the priorities that have pending runs, due or not: one index lookup each."""
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
    """Return when the first pending run of a walk is due."""
    kind, of = walk
    rows = (db.one(_SQL[f"{kind}next_run_at"], (*of, priority)) for priority in priorities(db, walk))
    return min((row[0] for row in rows if row is not None and row[0] is not None), default=None)
