"""trail, follow and follow_all: the rows of the trail, once or again and again."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from holdfast import bounds
from holdfast.bounds import BATCH_BYTES, Quota, page
from holdfast.lifecycle import Status
from holdfast.records import Followed, Instant, Tenant, TrailEntry, TrailPage, moment, tenant_name
from holdfast.records.sizes import entry_bytes

from .connection.database import Database, Row, text
from .sql import statements

T = TypeVar("T")

_SQL = statements("trail")
Term = tuple[Any, ...]  # a condition and its values

MANY = 20  # runs: a read of more of them is a large read


def trail(
    db: Database,
    run: UUID | None,
    tenant: str | None,
    types: Sequence[str],
    between: tuple[Instant | None, Instant | None],
    part: tuple[int, int],
) -> list[TrailEntry]:
    """Return trail entries. `part`: the number after which they begin, and the most entries."""
    after, limit = part
    terms: list[Term] = [("event.id > ?", after)]
    if run is not None:
        if db.one(_SQL["is_there"], (str(run),)) is None:
            return []
        terms.append(("event.workflow_id = ?", str(run)))
        terms += _of_tenant(tenant)
    else:
        terms += _of_all(tenant)
    since, until = between
    if since is not None:
        terms.append(("event.created_at >= ?", since))
    if until is not None:
        terms.append(("event.created_at < ?", until))
    return page(_rows(db, [*terms, *_of_types(types)], limit), entry_bytes, limit)


def _of_all(tenant: str | None) -> Iterator[Term]:
    yield (_SQL["is_whole"],)
    yield from _of_tenant(tenant)


def _of_tenant(tenant: str | None) -> Iterator[Term]:
    if tenant is not None:
        yield _SQL["is_of_tenant"], tenant


def _of_types(types: Sequence[str]) -> Iterator[Term]:
    if types:
        yield f"event.event_type in ({', '.join('?' * len(types))})", *types


def _rows(db: Database, terms: Sequence[Term], limit: int) -> Iterator[TrailEntry]:
    sql = _SQL["trail"].replace("$terms", " and ".join(term for term, *_ in terms))
    values = [value for _, *values in terms for value in values]
    return map(_entry, db.each(sql, (*values, max(0, limit))))


def _entry(row: Row) -> TrailEntry:
    return TrailEntry(seq=row[0], run=UUID(row[1]), type=row[2], at=moment(row[4]), data_json=row[3])


def follow(
    db: Database, runs: Sequence[tuple[UUID, int]], tenant: str | None, limit: int, budget: int
) -> list[Followed]:
    """Return the news of these runs: one statement finds the runs that have news, one more for each of them
    reads its rows."""
    asked = {"runs": text([(str(run), after) for run, after in runs]), "tenant": tenant}
    quota: Quota[TrailEntry] = Quota(entry_bytes, limit, budget)
    return [_followed(db, row, quota) for row in db.all(_SQL["followed"], asked)]


def _followed(db: Database, row: Row, quota: Quota[TrailEntry]) -> Followed:
    run, after, owner, status, present, has_rows = row
    if owner is None:
        return Followed(run=UUID(run), gone=True)
    entries: tuple[TrailEntry, ...] = ()
    more = bool(has_rows)
    if more and quota.rows:
        later = db.each(_SQL["later"], {"run": run, "after": after, "limit": quota.rows + 1})
        entries, more = quota.take(map(_entry, later))
    return Followed(
        run=UUID(run),
        tenant=owner,
        status=Status(status),
        present=UUID(present),
        entries=entries,
        more=more,
    )


def follow_all(
    db: Database, tenant: str | None, types: Sequence[str], after: int | None, part: tuple[int, int]
) -> TrailPage:
    """Return a page of the whole trail. `part`: the most rows, and the most bytes."""
    ((last,),) = db.all(_SQL["last"])
    if after is None:
        return TrailPage(seq=last)
    limit, budget = part
    ((end, looked),) = db.all(_SQL["scanned"], {"after": after, "rows": bounds.SCAN_ROWS})
    if not looked:
        return TrailPage(seq=max(after, last))
    terms = [("event.id > ?", after), ("event.id <= ?", end), *_of_all(tenant), *_of_types(types)]
    quota: Quota[TrailEntry] = Quota(entry_bytes, limit, budget)
    entries, is_cut = quota.take(_rows(db, terms, max(0, limit) + 1))
    if is_cut:
        return TrailPage(entries=entries, seq=entries[-1].seq if entries else after, more=True)
    more = looked == bounds.SCAN_ROWS and end < last
    return TrailPage(entries=entries, seq=end if more else max(after, last), more=more)


class TrailVerbs:
    """The verbs of the trail, as a mixin of the store."""

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _read_apart(self, work: Callable[..., T], *args: Any) -> T: ...

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> builtins.list[TrailEntry]:
        return self._read(trail, run, tenant_name(tenant), types, between, (after, limit))

    async def follow(
        self, runs: Sequence[tuple[UUID, int]], tenant: Tenant, limit: int = 1000, bytes: int = BATCH_BYTES
    ) -> builtins.list[Followed]:
        whose = tenant_name(tenant)
        if len(runs) > MANY:
            return await self._read_apart(follow, runs, whose, limit, bytes)
        return self._read(follow, runs, whose, limit, bytes)

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = BATCH_BYTES,
    ) -> TrailPage:
        return await self._read_apart(follow_all, tenant_name(tenant), types, after, (limit, bytes))
