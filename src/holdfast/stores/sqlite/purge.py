"""purge: what has expired goes for good, a slice a commit, so that nobody waits long for it.

A slice is bounded by the clock and not by a count: to remove a row takes as long as its values are, and
how long they are nobody knows before he has read them.
"""

from __future__ import annotations

import time

from holdfast.records import Instant, Purged
from holdfast.store import EVENT_KEEP_SECONDS, GONE_SECONDS
from holdfast.stores.durations import micros

from .database import Database, text
from .sql import statements

_SQL = statements("purge")
_EXPIRED = {name: _SQL[name].replace("$free", _SQL["free"]) for name in ("deleted", "expired", "finished")}
_OF_A_RUN = [_SQL[f"some_{what}"] for what in ("trail", "steps", "receipts", "addressed", "outbox")]

SLICE_SECONDS = 0.01
SOME = 20  # rows that are removed between two looks at the clock
HALF_GONE = -1  # as deleted_at: a purge has begun to remove it

Terms = tuple[float, float]  # how long finished and deleted runs are kept, in seconds


def found(db: Database, now: Instant, terms: Terms) -> bool:
    """Whether a purge would find anything; a look, no write."""
    return bool(_expired(db, now, terms, 1) or _over(db, now, 1) or _gone(db, now))


def purge(db: Database, now: Instant, terms: Terms, limit: int) -> Purged | None:
    """One slice. None: so far only a part of a run that is too long for one."""
    until = time.monotonic() + SLICE_SECONDS
    runs = _expired(db, now, terms, limit)
    removed = _remove(db, runs, until)
    if runs and not removed:
        return None
    workers = _gone(db, now)
    if workers:
        db.run(_SQL["workers"], (text(workers),))
    return Purged(runs=removed, events=_remove_over(db, now, until), workers=len(workers))


def _expired(db: Database, now: Instant, terms: Terms, limit: int) -> list[str]:
    ttl, deleted = terms
    runs: dict[str, None] = {}
    for name, until in (
        ("deleted", max(HALF_GONE, now - micros(deleted))),
        ("expired", now),
        ("finished", now - micros(ttl)),
    ):
        if len(runs) < limit:
            runs |= dict.fromkeys(run for (run,) in db.all(_EXPIRED[name], (until, limit)))
    return list(runs)[: max(0, limit)]


def _remove(db: Database, runs: list[str], until: float) -> int:
    """As many of them as there is time for; one that is begun and not done is hidden."""
    for number, run in enumerate(runs):
        while _some_of(db, run):
            if time.monotonic() >= until:
                db.run(_SQL["hide"], (run,))
                return number
        db.run(_SQL["run"], (run,))
        if time.monotonic() >= until:
            return number + 1
    return len(runs)


def _some_of(db: Database, run: str) -> bool:
    """Remove some rows of each kind; whether there may be more."""
    more = False
    for sql in _OF_A_RUN:
        db.run(sql, (run, SOME))
        more = more or db.changes() == SOME
    return more


def _remove_over(db: Database, now: Instant, until: float) -> int:
    """Events whose time is over, some at least."""
    removed = 0
    while some := _over(db, now, SOME):
        db.run(_SQL["events"], (text(some),))
        removed += len(some)
        if time.monotonic() >= until:
            break
    return removed


def _over(db: Database, now: Instant, limit: int) -> list[int]:
    return [seq for (seq,) in db.all(_SQL["over"], (now, now - micros(EVENT_KEEP_SECONDS), limit))]


def _gone(db: Database, now: Instant) -> list[str]:
    return [worker for (worker,) in db.all(_SQL["gone"], (now - micros(GONE_SECONDS),))]
