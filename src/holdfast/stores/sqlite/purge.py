"""purge: what has expired goes for good, a slice a commit, so that nobody waits long for it.

A slice is bounded by the clock and by bytes, and not by a count: to remove a row takes as long as its values
are large. So it begins with one row, and takes as many next as would fit, were they like those before; of
those no more than the bytes that are left allow.
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

from . import children
from .database import Database, Row, text
from .saving import HALF_GONE
from .sql import statements

if TYPE_CHECKING:
    from .writer import Work

T = TypeVar("T")

_SQL = statements("purge")
_FORGET_USED = statements("limited")["forget_used"]
_OF_A_RUN = [
    (_SQL[f"sizes_of_{what}"], _SQL[f"some_{what}"])
    for what in ("trail", "steps", "receipts", "passed", "addressed", "outbox")
]

_LISTS = {"deleted": "deleted_at", "expired": "expires_at", "finished": "finished_at"}


def _of_lists(name: str) -> dict[str, str]:
    sql = _SQL[name].replace("$free", _SQL["free"])
    return {one: sql.replace("$expired", _SQL[one]).replace("$at", at) for one, at in _LISTS.items()}


_SOME_FREE, _LAST_OF_SOME = _of_lists("some_free"), _of_lists("last_of_some")

SLICE_SECONDS = 0.01
SLICE_BYTES = 2 * BATCH_BYTES  # of values; the last row may bring more
GROWTH = 4  # so many times as many rows at most, from one look at the clock to the next

LOOK_MAX = 1000  # expired runs that are looked at in one go

Terms = tuple[float, float]  # how long finished and deleted runs are kept, in seconds
Past = dict[str, tuple[Instant, str]]  # of each list, how far all is held: instant and run
_START = (-(2**62), "")


class Slice:
    """The time and the bytes of values that one commit may still take."""

    def __init__(self) -> None:
        self._until, self._began = time.monotonic() + SLICE_SECONDS, 0.0
        self._bytes = SLICE_BYTES

    @property
    def is_over(self) -> bool:
        return self._bytes <= 0 or time.monotonic() >= self._until

    def begin(self) -> int:
        """Rows of another kind: how many to remove first."""
        self._began = time.monotonic()
        return 1

    def fitting(self, sizes: Iterable[int]) -> int:
        """How many of the first rows of these sizes may go; at least one, if there is one. They count."""
        count = 0
        for size in sizes:
            if count and size > self._bytes:
                break
            self._bytes -= size
            count += 1
        return count

    def next(self, some: int) -> int:
        """How many rows more there is time for, going by `some` that were removed since the last look."""
        began, now = self._began, time.monotonic()
        self._began = now
        if self.is_over:
            return 0
        return max(1, int(some * min(GROWTH, (self._until - now) / max(now - began, 1e-6))))


def found(db: Database, now: Instant, terms: Terms, past: Past) -> bool | None:
    """Whether a purge would find anything; a look, no write. None: only runs that are held so far; `past`
    is where to look next, and is cleared when all were seen."""
    if _expired(db, now, terms, 1, past):
        return True
    for name, until in _until(now, terms).items():
        last = db.one(_LAST_OF_SOME[name], {"until": until, "most": LOOK_MAX, **_after(past, name)})
        if last is not None:
            past[name] = last
            return None
    past.clear()
    return bool(_over(db, now, 1) or _gone(db, now) or _uncounted(db, now))


def purge(db: Database, now: Instant, terms: Terms, limit: int, past: Past | None = None) -> Purged | None:
    """One slice. None: so far only a part of a run that is too long for one."""
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
    """As many of them as there is time for; one that is begun and not done is hidden."""
    for number, run in enumerate(runs):
        if not _is_emptied(db, run, left):
            db.run(_SQL["hide"], (run,))
            return number
        awaited_by, first = db.one(_SQL["awaited_by"], (run,)), db.one(_SQL["first"], (run,))
        left.fitting(size for (size,) in db.all(_SQL["size_of_run"], (run,)))
        db.run(_SQL["run"], (run,))
        if first is not None:  # it goes next, and is hidden until then
            db.run(_SQL["hide"], first)
            runs.insert(number + 1, first[0])
        if awaited_by is not None:
            children.tell_gone(db, now, run, awaited_by)
        if left.is_over:
            return number + 1
    return len(runs)


def _is_emptied(db: Database, run: str, left: Slice) -> bool:
    """Remove all that belongs to it, or some: there was no time for more."""
    for sizes, remove in _OF_A_RUN:
        some = left.begin()
        while fitting := left.fitting(size for (size,) in db.all(sizes, (run, some))):
            db.run(remove, (run, fitting))
            some = left.next(fitting)
            if not some:
                return False
    return True


def _remove_over(db: Database, now: Instant, left: Slice) -> int:
    """Events whose time is over, one at least."""
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
    """Claims that no rate counts any more, one at least; later claims remove some too."""
    removed, some = 0, left.begin()
    while some and _uncounted(db, now):
        db.run(_FORGET_USED, (now, some))
        removed += db.changes()
        some = left.next(some)
    return removed


def _uncounted(db: Database, now: Instant) -> bool:
    return db.one(_SQL["uncounted"], (now,)) is not None


def _over(db: Database, now: Instant, limit: int) -> list[Row]:
    return db.all(_SQL["over"], (now, now - micros(EVENT_KEEP_SECONDS), limit))


def _gone(db: Database, now: Instant) -> list[str]:
    return [worker for (worker,) in db.all(_SQL["gone"], (now - micros(GONE_SECONDS),))]


class PurgeRoom:
    """The verb, for a store that reads at once and queues what it writes."""

    _clock: Callable[[], Instant]
    _past: Past

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def _found(self, terms: Terms) -> bool:
        """Whether there is anything to remove, behind those that were held and, if not, before them too."""
        for _ in range(2 if self._past else 1):
            # However many runs are held, the loop is not: between two looks others have their turn.
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
        # A run that is too long for one commit goes in several; others come in between.
        while (
            purged := await self._write(lambda db, now: purge(db, now, terms, limit, past), news=True)
        ) is None:
            pass
        return purged
