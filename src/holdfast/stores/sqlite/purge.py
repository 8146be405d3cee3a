"""purge: what has expired goes for good, a slice a commit, so that nobody waits long for it."""

from __future__ import annotations

from holdfast.records import Instant, Purged
from holdfast.store import EVENT_KEEP_SECONDS, GONE_SECONDS
from holdfast.stores.durations import micros

from .database import Database, text
from .sql import statements

_SQL = statements("purge")
_EXPIRED = {name: _SQL[name].replace("$free", _SQL["free"]) for name in ("deleted", "expired", "finished")}
_WITH_A_RUN = ("trail", "steps", "receipts", "addressed", "outbox", "runs")

ROWS = 1000  # of the trail, in one slice: with what else goes that is about ten milliseconds
HALF_GONE = -1  # as deleted_at: a purge has begun to remove it

Terms = tuple[float, float]  # how long finished and deleted runs are kept, in seconds


def found(db: Database, now: Instant, terms: Terms) -> bool:
    """Whether a purge would find anything; a look, no write."""
    return bool(_expired(db, now, terms, 1) or _over(db, now, 1) or _gone(db, now))


def purge(db: Database, now: Instant, terms: Terms, limit: int) -> Purged | None:
    """One slice. None: so far only a part of a run that is too long for one."""
    runs = _expired(db, now, terms, limit)
    few = _few(db, runs)
    if runs and not few:
        _remove_some(db, runs[0])
        return None
    for what in _WITH_A_RUN if few else ():
        db.run(_SQL[what], (text(few),))
    events, workers = _over(db, now, ROWS), _gone(db, now)
    if events:
        db.run(_SQL["events"], (text(events),))
    if workers:
        db.run(_SQL["workers"], (text(workers),))
    return Purged(runs=len(few), events=len(events), workers=len(workers))


def _expired(db: Database, now: Instant, terms: Terms, limit: int) -> list[str]:
    ttl, deleted = terms
    found: dict[str, None] = {}
    for name, until in (
        ("deleted", max(HALF_GONE, now - micros(deleted))),
        ("expired", now),
        ("finished", now - micros(ttl)),
    ):
        if len(found) < limit:
            found |= dict.fromkeys(run for (run,) in db.all(_EXPIRED[name], (until, limit)))
    return list(found)[: max(0, limit)]


def _few(db: Database, runs: list[str]) -> list[str]:
    """As many of them, from the first on, as have few enough rows together."""
    few, rows = [], 0
    for run, size in db.all(_SQL["size"], {"runs": text(runs), "most": ROWS + 1}) if runs else ():
        rows += size
        if rows > ROWS:
            break
        few.append(run)
    return few


def _remove_some(db: Database, run: str) -> None:
    """Of a run with very many rows: hidden first, the run itself last."""
    db.run(_SQL["hide"], (run,))
    for what in ("some_trail", "some_steps", "some_events"):
        db.run(_SQL[what], (run, ROWS))


def _over(db: Database, now: Instant, limit: int) -> list[int]:
    return [seq for (seq,) in db.all(_SQL["over"], (now, now - micros(EVENT_KEEP_SECONDS), limit))]


def _gone(db: Database, now: Instant) -> list[str]:
    return [worker for (worker,) in db.all(_SQL["gone"], (now - micros(GONE_SECONDS),))]
