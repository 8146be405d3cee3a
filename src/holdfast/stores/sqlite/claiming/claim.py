"""claim and load: lease due runs in one commit, and read their records. The package docstring explains it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from uuid import UUID

import msgspec

from holdfast.contract import START
from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import Answer, Ask, Claim, Instant, Lease, Loaded, Step
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.rows import steps_after
from holdfast.stores.sqlite.sql import statements

from . import next_claim, walks
from .limited import Limited

_SQL = statements("claiming/claim")
SMALL_BYTES = 16 * 1024  # params and labels up to this size are returned by the claiming statement itself


def candidates(db: Database, now: Instant, ask: Ask) -> Iterator[Row]:
    """Yield due runs as (priority, run_at, id, crashes, …) in queue order, without those that do not fit."""
    return _opened(db, now, ask)[0]


def _opened(
    db: Database, now: Instant, ask: Ask, *, deep: bool = True
) -> tuple[Iterator[Row], Limited | None]:
    streams: list[Iterator[Row]] = []
    for tenant, each in walks.scopes(ask):
        row = walks.first(db, tenant, each)
        if row is None:
            continue
        if row[1] is not None:
            return _limited(Limited(db, now, ask, row[1], deep=deep), ask)
        streams += walks.opened(db, now, tenant, each, row)
    ordered = streams[0] if len(streams) == 1 else heapq.merge(*streams)
    return _spared(ordered, ask.crashed) if ask.crashed else ordered, None


def _limited(limited: Limited, ask: Ask) -> tuple[Iterator[Row], Limited]:
    def counted() -> Iterator[Row]:
        fitting = limited.fitting()
        for row in _spared(fitting, ask.crashed) if ask.crashed else fitting:
            limited.take(row)
            yield row

    return counted(), limited


def _spared(rows: Iterator[Row], crashed: tuple[int, ...]) -> Iterator[Row]:
    # held[k - 1]: the number of taken runs that crashed k times or more. The last entry also covers higher
    # counts.
    held = [0] * len(crashed)
    for row in rows:
        levels = min(row[3], len(crashed))
        if any(held[level] >= crashed[level] for level in range(levels)):
            continue
        for level in range(levels):
            held[level] += 1
        yield row


def found(db: Database, now: Instant, ask: Ask) -> bool | None:
    """Return True when a claim would find a run, without a write. None: only a survey of every lane can
    tell."""
    if ask.limit <= 0 or (db.surveyed and next_claim.remembered(db, now, ask) is not None):
        return False
    rows, limited = _opened(db, now, ask, deep=False)
    if next(rows, None) is not None:
        return True
    return None if limited is not None and limited.unsure else False


def _chosen(db: Database, now: Instant, ask: Ask, clock: Callable[[], Instant]) -> tuple[list[str], Instant]:
    """Return the runs to claim, and the instant of their lease. Rates count the claims at that instant.

    Under limits the clock is read again: skipping runs takes time, and a lease has to last as long as asked
    for.
    """
    rows, limited = _opened(db, now, ask)
    chosen = [row[2] for row in islice(rows, ask.limit)]
    del rows  # its cursor must not walk the index while the update changes it
    if limited is not None:
        now = max(now, clock())
        limited.note(now)
    return chosen, now


def claim(db: Database, now: Instant, ask: Ask, clock: Callable[[], Instant]) -> list[Claim]:
    """Lease the chosen runs and return them."""
    chosen, now = _chosen(db, now, ask, clock)
    values = {
        "runs": text(chosen),
        "worker": ask.worker,
        "now": now,
        "until": now + micros(ask.lease_seconds),
        "small": SMALL_BYTES,
    }
    claimed = {row[0]: row for row in db.all(_SQL["claim"], values)}
    by = text(ask.worker)
    trail = [
        (run, f'{{"worker":{by},"attempt":{claimed[run][5]},"fence":{claimed[run][4]}}}') for run in chosen
    ]
    db.run(_SQL["leased"], {"rows": text(trail), "now": now})
    left, claims = ask.bytes, []
    for run in chosen:
        claim, size = _claim(db, claimed[run], left)
        left -= size
        claims.append(claim)
    return claims


def _claim(db: Database, row: Row, most: int) -> tuple[Claim, int]:
    """Return the claim and the bytes of its values. More than `most` bytes: no values, and `unread` is
    set."""
    run = row[0]
    # In revision 1 only this claim has changed the row since its start: it has neither steps nor logs.
    again = row[11] > 1
    claim = Claim(
        id=UUID(run), type=row[1], tenant=row[2], params=row[3] or "null", fence=row[4], attempt=row[5],
        crashes=row[6], max_attempts=row[7], created_at=row[8], lease_until=row[9], timeout_at=row[10],
        logs=_logs(db, run) if again else 0, run_at=row[14],
    )  # fmt: skip
    if row[12] is not None:
        claim = _rare(claim, row[12])
    left, more, steps = most - row[13], False, list[Step]()
    if left >= 0 and (again or claim.kind == "plan"):
        steps, left, more = steps_after(db, run, START, left)
    if left < 0 or more:
        return msgspec.structs.replace(claim, params="null", labels_json=None, unread=True), 0
    if row[13] > SMALL_BYTES:
        params, labels = _values(db, run)
        claim = msgspec.structs.replace(claim, params=params, labels_json=labels)
    return msgspec.structs.replace(claim, steps=tuple(steps)) if steps else claim, most - left


def _rare(claim: Claim, rare: str) -> Claim:
    """Fill in the fields that most runs do not use."""
    kind, parent, cost, budget, labels, trace, account, left = msgspec.json.decode(rare)
    parent, account = (None if one is None else UUID(one) for one in (parent, account))
    return msgspec.structs.replace(
        claim, kind=kind, parent=parent, cost=cost, budget=budget, labels_json=labels, trace=trace or "",
        account=account, left=left,
    )  # fmt: skip


def _values(db: Database, run: str) -> Row:
    row = db.one(_SQL["values"], (run,))
    assert row is not None
    return row


def load(db: Database, now: Instant, lease: Lease, after: int, most: int) -> Loaded:
    """Return one page of the records of a leased run."""
    run = str(lease.run)
    row = db.one(_SQL["held"], {"run": run, "fence": lease.fence, "now": now})
    if row is None or not row[0]:
        return Loaded(
            answer=Answer.CANCELLED if row is not None and row[1] == Status.CANCELLED else Answer.LOST
        )
    params = labels = None
    if after == START:
        params, labels = _values(db, run)
        most -= row[3]
    steps, _, more = steps_after(db, run, after, most)
    return Loaded(answer=Answer.APPLIED, params=params, labels_json=labels, steps=tuple(steps), more=more)


def _logs(db: Database, run: str) -> int:
    row = db.one(_SQL["logs"], (run,))
    return row[0] if row is not None else 0
