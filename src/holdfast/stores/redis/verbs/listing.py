"""list, search and children: runs by filters. An index leads to the runs, and each is checked."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import msgspec

from holdfast import bounds
from holdfast.bounds import page, slices, text_bytes
from holdfast.contract import CHILDREN_COUNTED, OUTLINES_MAX
from holdfast.lifecycle import StepStatus
from holdfast.records import ChildCounts, Found, Run, RunFilter, RunOutline, Tenant, tenant_name
from holdfast.records.shown import without_values
from holdfast.records.sizes import run_bytes
from holdfast.stores.redis import rows
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.rows import RunRow
from holdfast.stores.run_filter import holds, inside, matches

from .shown import Showing

PAGE = 200  # runs that are read at once


class ListVerbs(Showing):
    """The lists, as a mixin of the store."""

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Sequence[Run]:
        where, found, size = inside(where), list[Run](), 0
        if limit <= 0:
            return found
        async for some in self._matching(where, after, limit):
            shown = await self._shown(some)
            found += shown if where.values else map(without_values, shown)
            size = sum(map(run_bytes, found))
            if len(found) >= limit or size > bounds.BATCH_BYTES:
                break
        return page(found, run_bytes, limit)

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> builtins.list[RunOutline]:
        where, found = msgspec.structs.replace(inside(where), values=False), list[RunRow]()
        if limit <= 0:
            return []
        async for some in self._matching(where, after, limit):
            found += some
            if len(found) >= limit:
                break
        return await self._outlined(found[:limit])

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        where = inside(where)
        looked_at: list[UUID] = []
        hits: list[RunRow] = []
        budget, ended = bounds.SEARCH_BYTES, True
        whole = msgspec.structs.replace(where, values=True)
        async for some in self._matching(whole, after, bounds.SEARCH_RUNS):
            for row in some:
                budget -= sum(map(text_bytes, (row.params, row.result, row.labels, row.error)))
                is_full = len(hits) == limit or len(looked_at) == bounds.SEARCH_RUNS
                if is_full or (looked_at and budget < 0):
                    ended = False
                    break
                looked_at.append(row.id)
                if holds(row, text):
                    hits.append(row)
            if not ended:
                break
        runs = await self._shown(hits)
        listed = page(runs if where.values else map(without_values, runs), run_bytes, limit)
        if len(listed) < len(hits):  # the others are too large for this answer
            del looked_at[looked_at.index(listed[-1].id) + 1 :]
            ended = False
        return Found(runs=tuple(listed), after=None if ended else looked_at[-1], looked_at=len(looked_at))

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> Sequence[ChildCounts]:
        name, found = tenant_name(tenant), []
        named = [*dict.fromkeys(runs)]
        for run, row in zip(named, await self._rows(named, small=True), strict=True):
            if row is None or row.deleted_at is not None or name not in {None, row.tenant}:
                continue
            counted, more = Counter[str](), False
            async for ids in self._walk(self._names("children", str(run)), None):
                seen = [
                    kid.status.value
                    for kid in await self._rows(ids, small=True)
                    if kid and not kid.deleted_at
                ]
                room = most - counted.total()
                counted.update(seen[:room])
                if len(seen) > room:
                    more = True
                    break
            if counted:
                found.append(ChildCounts(run=run, by_status=dict(counted), more=more))
        return found

    # Runs that match a filter.

    async def _matching(
        self, where: RunFilter, after: UUID | None, limit: int
    ) -> AsyncIterator[Sequence[RunRow]]:
        """Yield the runs of a filter, newest first, some at a time: as many as fit into BATCH_BYTES."""
        async for ids in self._candidates(where, after, limit):
            async for some in self._parts(where, ids):
                found = [row for row in await self._read_runs(where, some) if matches(row, where)]
                if where.waiting_on is not None:
                    found = await self._waiting(found, where)
                if found:
                    yield found

    async def _parts(self, where: RunFilter, ids: Sequence[UUID]) -> AsyncIterator[Sequence[UUID]]:
        """Yield the ids in parts whose values fit into BATCH_BYTES. If they do not fit together, runs that do
        not match are left out first: their values are not read."""
        fields = rows.LARGE if where.values else ("labels", "progress")
        asked = [("HSTRLEN", self._names.run(id), field) for id in ids for field in fields]
        lengths = await self._connections.ask(asked)
        sizes = {id: sum(lengths[at * len(fields) :][: len(fields)]) for at, id in enumerate(ids)}
        if sum(sizes.values()) > bounds.BATCH_BYTES:
            unlabelled = msgspec.structs.replace(where, labels={})
            stored = zip(ids, await self._rows(ids, small=True), strict=True)
            ids = [id for id, row in stored if row is not None and matches(row, unlabelled)]
        for part in slices(ids, sizes.__getitem__):
            yield part

    async def _read_runs(self, where: RunFilter, ids: Sequence[UUID]) -> builtins.list[RunRow]:
        """Return these runs, as far as they are stored. Without `where.values`, params and result are left
        out."""
        if where.values:
            return [row for row in await self._rows(ids) if row is not None]
        fields, found = (*rows.SMALL_FIELDS, "labels", "progress"), list[RunRow]()
        answers = await self._connections.ask([("HMGET", self._names.run(id), *fields) for id in ids])
        for id, (*values, labels, progress) in zip(ids, answers, strict=True):
            if (row := rows.decoded(id, values, small=True)) is not None:
                row.params, row.result, row.labels, row.progress = "null", None, labels, progress
                found.append(row)
        return found

    async def _waiting(self, found: Sequence[RunRow], where: RunFilter) -> builtins.list[RunRow]:
        """Return the runs with an open wait of this kind."""
        keys = [rows.open_keys(row) for row in found]
        asked = [
            ("HMGET", self._names.steps(row.id), "", *open_) for row, open_ in zip(found, keys, strict=True)
        ]
        answers = await self._connections.ask(asked) if asked else []
        kept = []
        for row, texts in zip(found, answers, strict=True):
            steps = [rows.step_row(text) for text in texts if text]
            if any(one.status is StepStatus.WAITING and one.kind is where.waiting_on for one in steps):
                kept.append(row)
        return kept

    async def _candidates(
        self, where: RunFilter, after: UUID | None, limit: int
    ) -> AsyncIterator[Sequence[UUID]]:
        """Yield ids, newest first, by the index of one field of the filter."""
        size = min(max(limit, 10), PAGE)
        if where.key is not None and where.tenant is not None:
            found = self._of_key(str(where.tenant), where.key, after)
        elif _is_by_status(where):
            found = self._of_statuses(where, after, size)
        else:
            found = self._walk(_index(self._names, where), after, size)
        async for ids in found:
            yield ids

    async def _of_key(self, tenant: str, key: str, after: UUID | None) -> AsyncIterator[Sequence[UUID]]:
        (known,) = await self._connections.ask([("GET", self._names.of("key", tenant, key))])
        run = None if known is None else UUID(known.partition(" ")[0])
        if run is not None and (after is None or run < after):
            yield [run]

    async def _of_statuses(
        self, where: RunFilter, after: UUID | None, size: int
    ) -> AsyncIterator[Sequence[UUID]]:
        names = self._names
        keys = [
            names("status", status)
            if where.tenant is None
            else names.of(f"status:{status}", str(where.tenant))
            for status in dict.fromkeys(where.statuses)
        ]
        high = "+" if after is None else f"({after}"
        while True:
            pages = await self._connections.ask(
                [("ZREVRANGEBYLEX", key, high, "-", "LIMIT", 0, size) for key in keys]
            )
            ids = sorted({id for one in pages for id in one}, reverse=True)[:size]
            if not ids:
                return
            yield [UUID(id) for id in ids]
            high = f"({ids[-1]}"

    async def _walk(self, key: str, after: UUID | None, size: int = PAGE) -> AsyncIterator[Sequence[UUID]]:
        """Yield the ids of an index, newest first. A run may be in it several times, side by side."""
        high = "+" if after is None else f"({after}"
        last: UUID | None = None
        while True:
            (members,) = await self._connections.ask([("ZREVRANGEBYLEX", key, high, "-", "LIMIT", 0, size)])
            ids = [id for id in dict.fromkeys(UUID(member[:36]) for member in members) if id != last]
            if ids:
                yield ids
                last = ids[-1]
            if len(members) < size:
                return
            high = f"({members[-1]}"


def _is_by_status(where: RunFilter) -> bool:
    narrower = where.parent is not None or where.waiting_on is not None or where.labels
    return bool(where.statuses) and not where.deleted and not narrower


def _index(names: Names, where: RunFilter) -> str:
    """Return the index that holds the fewest runs beside those of the filter, as far as is known."""
    if where.parent is not None:
        return names("children", str(where.parent))
    if where.waiting_on is not None:
        return names("waiting", where.waiting_on.value)
    if where.labels:
        name, value = next(iter(where.labels.items()))
        return names.of("labelled", name) if value is None else names.of("label", name, value)
    if where.type is not None and not where.type.endswith("%"):
        return names.of("type", where.type)
    return names("runs") if where.tenant is None else names.of("tenant", str(where.tenant))
