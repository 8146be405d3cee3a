"""purge: remove expired runs, events and workers for good, in slices of one commit each.

A slice is limited by time and by bytes, not by a count of rows, because the time to remove a row depends on
the size of its values. A slice begins with one row. It then takes as many rows as fit into the time, judged
by the rows before, and no more than the remaining bytes allow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.bounds import BATCH_BYTES
from holdfast.contract import DELETED_SECONDS, EVENT_KEEP_SECONDS, GONE_SECONDS, PURGE_SLICE, TTL_SECONDS
from holdfast.machine.durations import micros
from holdfast.records import Instant, Purged
from holdfast.stores.sqlite import keys, page_sessions
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view.saving import HALF_GONE

from . import children

if TYPE_CHECKING:
    from holdfast.stores.sqlite.connection.writer import Work

T = TypeVar("T")

_SQL = statements("chores/purge")
_FORGET_USED = statements("claiming/limited")["forget_used"]
_OF_A_RUN = [
    (_SQL[f"sizes_of_{what}"], _SQL[f"some_{what}"])
    for what in ("trail", "steps", "receipts", "passed", "addressed", "outbox", "accounts", "origins")
]

_LISTS = {"deleted": "deleted_at", "expired": "expires_at", "finished": "finished_at"}


def _of_lists(name: str) -> dict[str, str]:
    sql = _SQL[name].replace("$free", _SQL["free"])
    return {one: sql.replace("$expired", _SQL[one]).replace("$at", at) for one, at in _LISTS.items()}


_SOME_FREE, _LAST_OF_SOME = _of_lists("some_free"), _of_lists("last_of_some")

SLICE_SECONDS = 0.01
SLICE_BYTES = 2 * BATCH_BYTES  # of values; the last row may exceed it
GROWTH = 4  # the number of rows grows at most by this factor from one look at the clock to the next

LOOK_MAX = 1000  # expired runs that one read looks at

Terms = tuple[float, float]  # seconds for which finished and deleted runs are kept
Past = dict[str, tuple[Instant, str]]  # for each list a bookmark: all runs before it must be kept
_START = (-(2**62), "")


class Slice:
    """The time and the bytes of values that are left for one commit."""

    def __init__(self) -> None:
        self._until, self._began = time.monotonic() + SLICE_SECONDS, 0.0
        self._bytes = SLICE_BYTES

    @property
    def is_over(self) -> bool:
        return self._bytes <= 0 or time.monotonic() >= self._until

    def begin(self) -> int:
        """Begin with rows of another kind. Return how many to remove first."""
        self._began = time.monotonic()
        return 1

    def fitting(self, sizes: Iterable[int]) -> int:
        """Return how many of the first rows fit, at least one if there is one. Their bytes are counted."""
        count = 0
        for size in sizes:
            if count and size > self._bytes:
                break
            self._bytes -= size
            count += 1
        return count

    def next(self, some: int) -> int:
        """Return how many further rows fit into the time, judged by the `some` rows removed since the
        last call."""
        began, now = self._began, time.monotonic()
        self._began = now
        if self.is_over:
            return 0
        return max(1, int(some * min(GROWTH, (self._until - now) / max(now - began, 1e-6))))


def found(db: Database, now: Instant, terms: Terms, past: Past) -> bool | None:
    """Return True when a purge would find anything. It writes nothing.

    None: only runs that must be kept for now were found so far. `past` gets a bookmark for the next call, and
    is cleared at the end.
    """
    if _expired(db, now, terms, 1, past):
        return True
    for name, until in _until(now, terms).items():
        last = db.one(_LAST_OF_SOME[name], {"until": until, "most": LOOK_MAX, **_after(past, name)})
        if last is not None:
            past[name] = last
            return None
    past.clear()
    return bool(
        _over(db, now, 1)
        or _gone(db, now)
        or _uncounted(db, now)
        or keys.old_audit(db, now, 1)
        or keys.ended_keys(db, now, 1)
        or page_sessions.ended(db, now, 1)
    )


def purge(db: Database, now: Instant, terms: Terms, limit: int, past: Past | None = None) -> Purged | None:
    """Remove one slice. None: only a part of one run, which is too large for one slice."""
    left = Slice()
    runs = _expired(db, now, terms, limit, past or {})
    removed = _remove(db, now, runs, left)
    if runs and not removed:
        return None
    workers = _gone(db, now)
    if workers:
        db.run(_SQL["workers"], (text(workers),))
    late = removed and left.is_over
    return Purged(
        runs=removed,
        events=0 if late else _remove_over(db, now, left),
        workers=len(workers),
        claims=0 if late else _remove_uncounted(db, now, left),
        audit=0 if late else _remove_some(db, now, left, keys.old_audit, keys.remove_audit),
        api_keys=0 if late else _remove_some(db, now, left, keys.ended_keys, keys.remove_keys),
        sessions=0 if late else _remove_some(db, now, left, page_sessions.ended, page_sessions.remove),
    )


def _until(now: Instant, terms: Terms) -> dict[str, Instant]:
    ttl, deleted = terms
    return {
        "deleted": max(HALF_GONE, now - micros(deleted)),
        "expired": now,
        "finished": now - micros(ttl),
    }


def _after(past: Past, name: str) -> dict[str, Instant | str]:
    at, run = past.get(name, _START)
    return {"at": at, "id": run}


def _expired(db: Database, now: Instant, terms: Terms, limit: int, past: Past) -> list[str]:
    runs: dict[str, None] = {}
    for name, until in _until(now, terms).items():
        if len(runs) < limit:
            asked = {"until": until, "most": max(limit, LOOK_MAX), "limit": limit, **_after(past, name)}
            runs |= dict.fromkeys(run for (run,) in db.all(_SOME_FREE[name], asked))
    return list(runs)[: max(0, limit)]


def _remove(db: Database, now: Instant, runs: list[str], left: Slice) -> int:
    """Remove as many runs as there is time for. A run that is only partly removed is hidden."""
    for number, run in enumerate(runs):
        if not _is_emptied(db, run, left):
            db.run(_SQL["hide"], (run,))
            return number
        awaited_by, first = db.one(_SQL["awaited_by"], (run,)), db.one(_SQL["first"], (run,))
        left.fitting(size for (size,) in db.all(_SQL["size_of_run"], (run,)))
        db.run(_SQL["run"], (run,))
        if first is not None:  # the first run of the chain is next, and is hidden until then
            db.run(_SQL["hide"], first)
            runs.insert(number + 1, first[0])
        if awaited_by is not None:
            children.tell_gone(db, now, run, awaited_by)
        if left.is_over:
            return number + 1
    return len(runs)


def _is_emptied(db: Database, run: str, left: Slice) -> bool:
    """Remove the rows that belong to a run. Return False when there was no time for all of them."""
    for sizes, remove in _OF_A_RUN:
        some = left.begin()
        while fitting := left.fitting(size for (size,) in db.all(sizes, (run, some))):
            db.run(remove, (run, fitting))
            some = left.next(fitting)
            if not some:
                return False
    return True


def _remove_over(db: Database, now: Instant, left: Slice) -> int:
    """Remove expired events, at least one."""
    removed, some = 0, left.begin()
    while some and (over := _over(db, now, some)):
        fitting = left.fitting(size for _, size in over)
        events = (text([seq for seq, _ in over[:fitting]]),)
        db.run(_SQL["receipts_of_events"], events)
        db.run(_SQL["events"], events)
        removed += fitting
        some = left.next(fitting)
    return removed


def _remove_uncounted(db: Database, now: Instant, left: Slice) -> int:
    """Remove claims that no rate counts any more, at least one. Later claims remove some, too."""
    removed, some = 0, left.begin()
    while some and _uncounted(db, now):
        db.run(_FORGET_USED, (now, some))
        removed += db.changes()
        some = left.next(some)
    return removed


def _remove_some(
    db: Database,
    now: Instant,
    left: Slice,
    found: Callable[[Database, Instant, int], list[Any]],
    remove: Callable[[Database, list[Any]], None],
) -> int:
    """Remove rows that are small, at least one."""
    removed, some = 0, left.begin()
    while some and (over := found(db, now, some)):
        remove(db, over)
        removed += len(over)
        some = left.next(len(over))
    return removed


def _uncounted(db: Database, now: Instant) -> bool:
    return db.one(_SQL["uncounted"], (now,)) is not None


def _over(db: Database, now: Instant, limit: int) -> list[Row]:
    return db.all(_SQL["over"], (now, now - micros(EVENT_KEEP_SECONDS), limit))


def _gone(db: Database, now: Instant) -> list[str]:
    return [worker for (worker,) in db.all(_SQL["gone"], (now - micros(GONE_SECONDS),))]


class PurgeVerbs:
    """The verb purge, as a mixin of the store."""

    _clock: Callable[[], Instant]
    _past: Past

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def _found(self, terms: Terms) -> bool:
        """Return True when there is anything to remove: after the bookmark, and if not, also before it."""
        for _ in range(2 if self._past else 1):
            # However many runs are held, other tasks can run between two reads.
            while (is_found := self._read(found, self._clock(), terms, self._past)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if is_found:
                return True
        return False

    async def purge(
        self,
        ttl_seconds: float = TTL_SECONDS,
        deleted_seconds: float = DELETED_SECONDS,
        limit: int = PURGE_SLICE,
    ) -> Purged:
        terms = (ttl_seconds, deleted_seconds)
        if not await self._found(terms):
            return Purged()
        past = dict(self._past)
        # A run that is too large for one commit is removed in several. Other writes come in between.
        while (
            purged := await self._write(lambda db, now: purge(db, now, terms, limit, past), news=True)
        ) is None:
            pass
        return purged
