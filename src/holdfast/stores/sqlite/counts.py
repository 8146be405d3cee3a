"""counts, rates, scale and recount: kept counts, together with the changes that are not folded yet."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from holdfast.contract import DUE_COUNTED, RATES_MAX, SCALE_MAX
from holdfast.errors import StoreError, Unavailable
from holdfast.lifecycle import Status
from holdfast.records import (
    Counted,
    Counts,
    DueRuns,
    Instant,
    Miscount,
    Rate,
    Scale,
    Tenant,
    tenant_name,
)
from holdfast.stores.counting import counts_of, minute_of

from .chores.folding import ALL, SQL
from .claiming import lanes
from .connection.database import Database
from .connection.errors import translated
from .migrate import opened

if TYPE_CHECKING:
    from .connection.writer import Work

T = TypeVar("T")

PAIRS_MAX = 10 * SCALE_MAX  # types and tenants that one call of `scale` looks at
LANES_MAX = 10_000  # limit keys and priorities of a type and tenant that it looks at
REPAIR_TRIES = 5
_LATEST = (1 << 63) - 1

Key = tuple[str, str, str]  # tenant, type, status


class CountVerbs:
    """The verbs, as a mixin of the store."""

    path: str
    _clock: Callable[[], Instant]
    _inline: bool
    _checking: threading.Lock
    _writer: Any

    if TYPE_CHECKING:

        async def _write(
            self, work: Work[T], *, news: bool = False, alone: bool = False, size: int = 0
        ) -> T: ...

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _read_apart(self, work: Callable[..., T], *args: Any) -> T: ...

    async def counts(self, tenant: Tenant) -> Counts:
        return self._read(counts, self._clock(), tenant_name(tenant))

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        return self._read(rates, tenant_name(tenant), since, until, limit)

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        return await self._read_apart(scale, self._clock(), tenant_name(tenant), limit)

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        for _ in range(REPAIR_TRIES):
            found, repairs = await self._recounted()
            if not repair or not found:
                return found
            if await self._write(partial(_correct, found, repairs)):
                return found
        raise StoreError(f"{self.path}: others repair the counts too; wait until they have ended")

    async def _recounted(self) -> tuple[list[Miscount], int]:
        if self._inline:
            return self._read(recounted)
        if self._writer is None:
            raise Unavailable(f"{self.path}: the store is not open")
        return await asyncio.to_thread(_recounted_alone, self.path, self._checking)


def counts(db: Database, now: Instant, tenant: str | None) -> Counts:
    kept = Counter[tuple[str, str]]()
    totals = Counter[tuple[str, str]]()
    whose = ALL if tenant is None else tenant
    for kind, status, number in db.all(SQL["kept"], (whose,)):
        kept[kind, status] += number
    for kind, what, number in db.all(SQL["totals"], (whose,)):
        totals[kind, what] += number
    for kind, before, after, what, number in db.all(SQL["unfolded"], {"tenant": tenant}):
        for name, moved in ((before, -number), (after, number)):
            if name:
                kept[kind, name] += moved
        if what:
            totals[kind, what] += number
    return counts_of(now, _rows(kept), _rows(totals))


def _rows(numbers: Counter[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
    return ((kind, name, number) for (kind, name), number in numbers.items())


def rates(db: Database, tenant: str | None, since: Instant, until: Instant | None, limit: int) -> list[Rate]:
    asked = {
        "tenant": tenant,
        "kept": ALL if tenant is None else tenant,
        "since": minute_of(since),
        "until": _LATEST if until is None else until,
        "limit": max(0, min(limit, RATES_MAX)),
    }
    return [
        Rate(minute=minute, type=kind, what=Counted(what), number=number)
        for minute, kind, what, number in db.all(SQL["rates"], asked)
    ]


def scale(db: Database, now: Instant, tenant: str | None, limit: int = SCALE_MAX) -> Scale:
    limit, leased = max(0, min(limit, SCALE_MAX)), _leased(db, tenant)
    items: dict[tuple[str, str], DueRuns] = {}
    cut = False
    for looked_at, (kind, whose) in enumerate(_pairs(db, tenant)):
        if len(items) > limit or looked_at == PAIRS_MAX:
            cut = True
            break
        due, more, oldest = _due(db, now, kind, whose)
        if due:
            items[kind, whose] = DueRuns(
                type=kind, tenant=whose, due=due, more=more, oldest_due_at=oldest,
                leased=leased.pop((kind, whose), 0),
            )  # fmt: skip
    for (kind, whose), number in leased.items():
        items[kind, whose] = DueRuns(
            type=kind, tenant=whose, due=0, more=False, oldest_due_at=None, leased=number
        )
    found = [items[pair] for pair in sorted(items)]
    return Scale(now=now, items=tuple(found[:limit]), more=cut or len(found) > limit)


def _leased(db: Database, tenant: str | None) -> dict[tuple[str, str], int]:
    found = Counter[tuple[str, str]]()
    whole = db.all(SQL["leased"]) if tenant is None else db.all(SQL["leased_of_tenant"], (tenant,))
    for kind, whose, number in [*whole, *db.all(SQL["unfolded_leased"], {"tenant": tenant})]:
        if whose != ALL:
            found[kind, whose] += number
    return {pair: number for pair, number in sorted(found.items()) if number > 0}


def _pairs(db: Database, tenant: str | None) -> Iterator[tuple[str, str]]:
    """Yield the types and tenants that have pending runs, in order, by an index of these runs."""
    row = db.one(SQL["next_pair"], ("", ""))
    while row is not None:
        kind, whose = row
        if tenant is None:
            yield kind, whose
            row = db.one(SQL["next_pair"], (kind, whose))
        else:
            if whose == tenant or db.one(SQL["has_pending"], (kind, tenant)) is not None:
                yield kind, tenant
            row = db.one(SQL["next_pair"], (kind, chr(0x10FFFF)))


def _due(db: Database, now: Instant, kind: str, tenant: str) -> tuple[int, bool, Instant | None]:
    """Return how many runs are due, whether there are more, and since when the oldest one is.

    The first run of each lane is its oldest one. A lane has one limit key and one priority.
    """
    heads, after = lanes.heads(db, tenant, kind, None, LANES_MAX)
    due, oldest = 0, None
    for priority, run_at, _, _, _, _, key in heads:
        if run_at <= now:
            oldest = run_at if oldest is None else min(oldest, run_at)
            if due <= DUE_COUNTED:
                asked = {"type": kind, "tenant": tenant, "key": key, "priority": priority, "now": now}
                (number,) = db.one(SQL["due"], {**asked, "limit": DUE_COUNTED + 1 - due}) or (0,)
                due += number
    return min(due, DUE_COUNTED), due > DUE_COUNTED or (after is not None and due > 0), oldest


def recounted(db: Database) -> tuple[list[Miscount], int]:
    """Compare kept counts with all runs. Return the differences, and how often the counts were repaired."""
    real, kept = Counter[Key](), Counter[Key]()
    for tenant, kind, status, number in db.all(SQL["real"]):
        real[tenant, kind, status] = number
    for tenant, kind, status, number in db.all(SQL["all_kept"]):
        kept[tenant, kind, status] += number
    for tenant, kind, before, after, number in db.all(SQL["all_unfolded"]):
        for whose in {tenant, ALL}:
            for status, moved in ((before, -number), (after, number)):
                if status:
                    kept[whose, kind, status] += moved
    # The count of all tenants is wrong by itself only when the counts of the tenants do not explain it.
    for (tenant, kind, status), number in [*kept.items()]:
        if tenant != ALL:
            real[ALL, kind, status] += number
    wrong = [key for key in sorted({*real, *kept}) if real[key] != kept[key]]
    (repairs,) = db.one(SQL["repairs"]) or ("0",)
    return [_miscount(key, kept[key], real[key]) for key in wrong], int(repairs)


def _miscount(key: Key, kept: int, real: int) -> Miscount:
    return Miscount(tenant=key[0], type=key[1], status=key[2], kept=kept, real=real)


def _recounted_alone(path: str, checking: threading.Lock) -> tuple[list[Miscount], int]:
    """Recount on a separate connection: it takes a while, and others want to read. See `checkup.alone`."""
    with checking:
        db = opened(path, reader=True)
        try:
            db.run("begin")
            return recounted(db)
        except apsw.Error as error:
            raise translated(error, path) from error
        finally:
            db.close()


def _correct(found: Sequence[Miscount], seen: int, db: Database, now: Instant) -> bool:
    """Write differences as changes of the counts. False: somebody else has repaired them since `seen`."""
    del now  # the changes are of no time: they are folded at once
    (repairs,) = db.one(SQL["repairs"]) or ("0",)
    if int(repairs) != seen:
        return False
    rows = [(one.tenant, one.type, one.status, one.real - one.kept) for one in found]
    db.many(SQL["correct"], rows)
    db.run(SQL["repaired"], (str(seen + 1),))
    return True


def by_status(db: Database, now: Instant) -> dict[str, int]:
    """Return the number of runs in each status."""
    return {status.value: 0 for status in Status} | counts(db, now, None).by_status()
