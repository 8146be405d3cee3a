"""Lists of runs by filters, in slices of bounded cost.

Each filter that has an index is a driver: it gives the ids of its runs. The driver with the fewest runs is
chosen, by counting at most CANDIDATES of each; the runs that it gives are checked against all filters. A
slice checks at most SLICE runs, and then says where the next slice begins. Decision 48 says which index
serves which filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.bounds import page
from holdfast.lifecycle import Status, StepKind
from holdfast.records import Instant, Run, RunFilter, RunOutline, instant
from holdfast.records.sizes import run_bytes

from .connection.database import Database, text
from .rows import LIST_WITHOUT_VALUES, OUTLINES, outline_record, run_or_deleted, run_record, stored_key
from .sql import statements

CANDIDATES = 2_000  # ids that a driver without an order may give
SLICE = 4_000  # runs that one slice checks
ODD_MS = 3_600_000  # an id whose time is further from the start of its run is in idx_workflow_run_odd_id
LAST_CHARACTER = "\U0010ffff"
_FIRST, _LAST = "", "~"  # before and after all ids
_EARLIEST, _LATEST = -(2**62), 2**62
_BY_STATUS = {Status.WAITING, Status.PAUSED, Status.FAILED, Status.CANCELLED}  # idx_workflow_run_status

_AMONG = "id in (select value from json_each(?))"

_SQL = statements("listing")
for _name, _text in _SQL.items():
    _SQL[_name] = _text.replace("$is_odd_id", _SQL["is_odd_id"]).replace("$failed_as", _SQL["failed_as"])

Values = dict[str, Any]


class Slice(NamedTuple):
    """Some runs of a list. `after`: the id after which the next slice begins; None: this was the last one."""

    runs: list[Run]
    after: str | None = None


class _Driver(NamedTuple):
    """A statement that gives the ids of a filter's runs. in_order: by id, newest first, from any id on."""

    sql: str
    in_order: bool
    values: Mapping[str, Any] = MappingProxyType({})


class _Window(NamedTuple):
    """The ids that a list by time may have: a range of them, and single ids outside of it."""

    down_to: str = _FIRST
    under: str = _LAST
    odd: tuple[str, ...] = ()


class Ids(NamedTuple):
    """The ids of a slice's runs, newest first; `after` as in `Slice`."""

    ids: list[str]
    after: str | None = None


def listed(db: Database, where: RunFilter, limit: int, after: str | None) -> Slice:
    """Return the runs of a slice, newest first. Without runs and with `after`: look further."""
    found = matching(db, where, limit, after)
    return Slice(records(db, where, found.ids, limit), found.after)


def outlined(
    db: Database, where: RunFilter, limit: int, after: str | None
) -> tuple[list[RunOutline], str | None]:
    """Return the outlines of a slice, and the id after which the next slice begins."""
    found = matching(db, where, limit, after)
    ids = found.ids[: max(0, limit)]
    sql = OUTLINES.replace("$terms", _AMONG)
    return [outline_record(row) for row in db.all(sql, (text(ids), len(ids)))], found.after


def matching(db: Database, where: RunFilter, enough: int, after: str | None) -> Ids:
    """Return the ids of a slice. It ends when it has `enough` of them, or a few more."""
    terms, values = _terms(where)
    sql = _SQL["matching"].replace("$terms", " and ".join(terms))
    window, best = _window(db, where), None
    drivers = list(_drivers(where))
    if len(drivers) > 1 or not drivers[0].in_order:
        best = min((_count(db, one, window, values), n, one) for n, one in enumerate(drivers))[2]
    driver = best or drivers[0]

    def checked(ids: list[str] | tuple[str, ...]) -> list[str]:
        return [run for (run,) in db.all(sql, {**values, "ids": text(ids)})]

    under = min(window.under, after or _LAST)
    if not driver.in_order:
        ids = _ids(db, driver, values, CANDIDATES)
        return Ids(checked([one for one in ids if one < (after or _LAST)]))
    odd = checked([one for one in window.odd if after is None or one < after])
    found: list[str] = []
    left, size = SLICE, min(max(enough, 100), SLICE)
    while True:
        bounds = {"under": under, "down_to": window.down_to}
        ids = _ids(db, driver, values | bounds, min(size, left))
        found += checked(ids)
        left -= len(ids)
        if len(ids) < size:
            return Ids(_merged(found, odd, _FIRST))
        under, size = ids[-1], min(2 * size, left)
        if len(found) >= enough or left <= 0:
            return Ids(_merged(found, odd, under), _place(db, where, under))


def _place(db: Database, where: RunFilter, under: str) -> str | None:
    """Return where the next slice begins. The last id that was walked may be a run of another tenant, which
    nobody may learn: so the place is made from the next id of the own tenant. None: there is none.
    """
    if not isinstance(where.tenant, str):
        return under
    asked = {"tenant": where.tenant, "under": under, "down_to": _FIRST, "many": 1}
    following = db.one(_SQL["walk_tenant"], asked)
    return None if following is None else str(UUID(int=UUID(following[0]).int + 1))


def _merged(found: list[str], odd: list[str], down_to: str) -> list[str]:
    return sorted({*found, *(one for one in odd if one >= down_to)}, reverse=True)


def records(db: Database, where: RunFilter, ids: list[str], limit: int) -> list[Run]:
    """Return these runs as a page."""
    ids = ids[: max(0, limit)]
    if not where.values:
        sql = LIST_WITHOUT_VALUES.replace("$terms", _AMONG)
        slim = (run_record(db, row) for row in db.each(sql, (text(ids), len(ids))))
        return page(slim, run_bytes, limit)
    found = (run_or_deleted(db, run) for run in ids)
    return page((run for run in found if run is not None), run_bytes, limit)


def _ids(db: Database, driver: _Driver, values: Values, many: int) -> list[str]:
    return [run for (run,) in db.all(driver.sql, {**values, **driver.values, "many": many})]


def _count(db: Database, driver: _Driver, window: _Window, values: Values) -> int:
    """Return how many ids the driver has, at most one more than CANDIDATES. Without an order it may not have
    more: then it is the last choice.
    """
    bounds = {"under": window.under, "down_to": window.down_to}
    count = len(_ids(db, driver, values | bounds, CANDIDATES + 1))
    return count if driver.in_order or count <= CANDIDATES else SLICE * CANDIDATES


def _drivers(where: RunFilter) -> Iterator[_Driver]:
    """Yield the drivers of a filter; of two that are too large for a count, the first one is taken.

    Open waits are a driver only beside roots and all runs: a walk over them has no bound, because it passes
    the waits of other kinds.
    """
    others = list(_selective(where))
    yield from others
    if where.waiting_on is not None and not others:
        yield _Driver(_SQL["walk_waiting"], in_order=True)
    if isinstance(where.tenant, str):
        yield _Driver(_SQL["walk_tenant_roots" if where.roots else "walk_tenant"], in_order=True)
        return
    if where.roots:
        yield _Driver(_SQL["walk_roots"], in_order=True)
    yield _Driver(_SQL["walk_all"], in_order=True)


def _selective(where: RunFilter) -> Iterator[_Driver]:
    if where.key is not None and isinstance(where.tenant, str):
        yield _Driver(_SQL["among_key"], in_order=False)
    for n, value in enumerate(where.labels.values()):
        walk = _SQL["walk_any_label" if value is None else "walk_label"]
        yield _Driver(_named(walk, n), in_order=True)
    if isinstance(where.error, tuple):
        yield _Driver(_SQL["among_errors"], in_order=False)
    elif where.error is not None:
        is_prefix = where.error.endswith("%")
        yield _Driver(_SQL["among_error_prefix" if is_prefix else "walk_error"], in_order=not is_prefix)
    if where.parent is not None:
        yield _Driver(_SQL["walk_parent"], in_order=True)
    yield from _by_status(where)
    yield from _by_time(where)


def _by_status(where: RunFilter) -> Iterator[_Driver]:
    statuses = set(where.statuses) if where.error is None else {Status.FAILED}
    if statuses and statuses <= _BY_STATUS:
        parts = " union all ".join(_SQL["walk_status"].replace("$status", one) for one in sorted(statuses))
        yield _Driver(f"{parts} order by id desc limit :many", in_order=True)
    elif statuses == {Status.LEASED} or (statuses == {Status.PENDING} and not where.deleted):
        yield _Driver(_SQL[f"among_{statuses.pop().value}"], in_order=False)


def _by_time(where: RunFilter) -> Iterator[_Driver]:
    for sql, since, until in (
        ("among_finished", where.finished_since, where.finished_until),
        ("among_changed", where.updated_since, where.updated_until),
    ):
        if since is not None or until is not None:
            first, last = _instant(since, _EARLIEST), _instant(until, _LATEST)
            ids = {"first_in": _first_id(first), "first_after": _first_id_after(last)}
            yield _Driver(_SQL[sql], in_order=False, values={"since": first, "until": last, **ids})


def _window(db: Database, where: RunFilter) -> _Window:
    """Return the ids that a list by time may have. No run has ended or changed before its start."""
    ends = [at for at in (where.created_until, where.finished_until, where.updated_until) if at is not None]
    if not ends and where.created_since is None:
        return _Window()
    since, until = _instant(where.created_since, _EARLIEST), _instant(min(ends, default=None), _LATEST)
    asked = {"since": since, "until": until, "many": CANDIDATES + 1}
    odd = tuple(run for (run,) in db.all(_SQL["odd_ids"], asked))
    return _Window(_first_id(since), _first_id_after(until), odd) if len(odd) <= CANDIDATES else _Window()


def _first_id(since: Instant) -> str:
    """Return the lowest id that a run may have that was started then, unless its id is odd."""
    return _id(since // 1000 - ODD_MS)


def _first_id_after(until: Instant) -> str:
    return _id(until // 1000 + ODD_MS + 1)


def _id(milliseconds: int) -> str:
    if milliseconds < 0:
        return _FIRST
    digits = f"{milliseconds:012x}"
    return f"{digits[:8]}-{digits[8:]}" if len(digits) == 12 else _LAST


def _instant(at: datetime | None, otherwise: Instant) -> Instant:
    return otherwise if at is None else instant(at)


def _named(sql: str, number: int) -> str:
    return sql.replace("$name", f"name{number}").replace("$value", f"value{number}")


def _terms(where: RunFilter) -> tuple[list[str], Values]:
    """Return the conditions of a filter, and their values by name."""
    values: Values = {}
    # A run that a purge has begun to remove (-1) is hidden from everyone.
    terms = ["coalesce(deleted_at, 0) >= 0" if where.deleted else "deleted_at is null"]
    for name, at, sign in (
        ("created_since", "created_at", ">="),
        ("created_until", "created_at", "<"),
        ("finished_since", "finished_at", ">="),
        ("finished_until", "finished_at", "<"),
        ("updated_since", _SQL["changed_at"], ">="),
        ("updated_until", _SQL["changed_at"], "<"),
    ):
        if (wanted := getattr(where, name)) is not None:
            terms.append(f"{at} {sign} :{name}")
            values[name] = instant(wanted)
    for term, more in (*_plain_terms(where), *_error_terms(where)):
        terms.append(term)
        values |= more
    for n, (name, value) in enumerate(where.labels.items()):
        terms.append(_named(_SQL["has_any_label" if value is None else "has_label"], n))
        values |= {f"name{n}": name, f"value{n}": value}
    return terms, values


def _plain_terms(where: RunFilter) -> Iterator[tuple[str, Values]]:
    if where.statuses:
        # Written into the statement, not bound: only then can the planner use a partial index.
        yield "(" + " or ".join(f"status = '{status.value}'" for status in where.statuses) + ")", {}
    if where.waiting_on is not None:
        yield _OPEN_WAIT, {"waiting_on": StepKind(where.waiting_on).value}
    if where.type is not None and where.type.endswith("%"):
        # LIKE would ignore case and treat _ as a wildcard, so compare a range.
        start = where.type[:-1]
        yield "type >= :type and type < :type_end", {"type": start, "type_end": start + LAST_CHARACTER}
    elif where.type is not None:
        yield "type = :type", {"type": where.type}
    if where.tenant is not None:
        yield "tenant = :tenant", {"tenant": where.tenant}
    if where.key is not None and isinstance(where.tenant, str):
        yield "idempotency_key = :key", {"key": stored_key(where.tenant, where.key)}
    elif where.key is not None:
        yield _HAS_KEY, {"key": where.key}
    if where.parent is not None:
        yield "parent_id = :parent", {"parent": str(where.parent)}
    if where.roots:
        yield "parent_id is null", {}


def _error_terms(where: RunFilter) -> Iterator[tuple[str, Values]]:
    error, found = where.error, _SQL["failed_as"]
    if isinstance(error, tuple):
        yield (
            f"status = 'failed' and {found} in (select value from json_each(:errors))",  # noqa: S608 - no text of a user
            {"errors": text(error)},
        )
    elif error is not None and error.endswith("%"):
        start = error[:-1]
        yield (
            f"status = 'failed' and {found} >= :error and {found} < :error_end",
            {"error": start, "error_end": start + LAST_CHARACTER},
        )
    elif error is not None:
        yield f"status = 'failed' and {found} = :error", {"error": error}


_READS = statements("reads")
_OPEN_WAIT = _READS["has_open_wait"].replace("?", ":waiting_on")
_HAS_KEY = _READS["has_key"].replace("?", ":key")


def children(db: Database, run: UUID, tenant: str | None, most: int) -> list[str]:
    """Return the statuses of the run's children, at most `most` of them."""
    return [
        status for (status,) in db.all(_SQL["children"], {"run": str(run), "tenant": tenant, "most": most})
    ]
