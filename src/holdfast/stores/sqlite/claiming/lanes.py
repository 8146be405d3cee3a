"""Lanes: the pending runs of a type, split by tenant, limit_key and priority, so that a full lane can be
skipped.

Only the first run of a lane, its head, is read until that run is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from holdfast.records import Instant
from holdfast.stores.sqlite.connection.database import Database, Row
from holdfast.stores.sqlite.sql import statements

_SQL = statements("claiming/lanes")
for _name in ("heads", "due_tenants"):
    for _part in ("within", "beyond"):
        _SQL[_name] = _SQL[_name].replace(f"${_part}", _SQL[_part])
_SQL["due_heads"] = _SQL["due_heads"].replace("$heads", _SQL["heads"])

SOME = 20  # runs of a lane that are read at once, after its head was taken

Lane = tuple[str, str | None, int]  # tenant, key, priority


def _begin(tenant: str | None, type_: str) -> dict[str, object]:
    """Return the values of a position before the first lane of a type, or of one tenant and type."""
    return {"type": type_, "all": tenant is None, "tenant": tenant or "", "key": None, "priority": -1}


def heads(
    db: Database, tenant: str | None, type_: str, after: Lane | None, most: int
) -> tuple[list[Row], Lane | None]:
    """Return the next heads, due or not, and the lane to continue after. None: there are no more."""
    begin = _begin(tenant, type_)
    if after is not None:
        begin |= dict(zip(("tenant", "key", "priority"), after, strict=True))
    rows = db.all(_SQL["heads"], {**begin, "most": most})
    return rows, (rows[-1][5], rows[-1][6], rows[-1][0]) if len(rows) == most else None


def due_tenants(db: Database, now: Instant, tenant: str | None, type_: str) -> list[str]:
    """Return the tenants that have a due run of the type."""
    begin = _begin(tenant, type_)
    del begin["key"], begin["priority"]
    return [row[0] for row in db.all(_SQL["due_tenants"], {**begin, "now": now})]


def in_order(
    db: Database, now: Instant, tenant: str | None, type_: str, full: Callable[[Row], bool]
) -> Iterator[Row]:
    """Yield due runs in queue order. A lane is not read further once it is full."""
    values = {**_begin(tenant, type_), "most": 1 << 62, "now": now}
    # One cursor is enough: all heads are found and sorted before its first row arrives.
    first: Iterator[Row] = db.connection.execute(_SQL["due_heads"], values)
    # For each lane that was begun: its next run, the place of that run, and the runs that were read.
    behind: list[tuple[Row, int, list[Row]]] = []
    head = next(first, None)
    while head is not None or behind:
        if head is not None and (not behind or head < behind[0][0]):
            row, place, lane, head = head, 0, [head], next(first, None)
        else:
            row, place, lane = heapq.heappop(behind)
        if full(row):
            continue
        yield row
        if full(row):
            continue
        if place + 1 == len(lane):
            place, lane = -1, _rest(db, now, row)
        if place + 1 < len(lane):
            heapq.heappush(behind, (lane[place + 1], place + 1, lane))


def _rest(db: Database, now: Instant, row: Row) -> list[Row]:
    priority, run_at, run, _, type_, tenant, key = row
    of = {"type": type_, "tenant": tenant, "key": key, "priority": priority}
    return db.all(_SQL["rest"], {**of, "run_at": run_at, "id": run, "now": now, "some": SOME})
