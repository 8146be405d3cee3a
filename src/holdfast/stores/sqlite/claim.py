"""claim: the due runs of some types, best first, leased in one commit."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice, product
from uuid import UUID

import msgspec

from holdfast.contract import START
from holdfast.lifecycle import Status
from holdfast.machine.durations import micros
from holdfast.records import Answer, Ask, Claim, Instant, Lease, Loaded, Step

from . import openings, walks
from .database import Database, Row, text
from .limited import Limited
from .rows import steps_after
from .sql import statements

_SQL = statements("claim")
SMALL_BYTES = 16 * 1024  # params and labels that every claim brings at once


def candidates(db: Database, now: Instant, ask: Ask) -> Iterator[Row]:
    """Due runs as (priority, run_at, id, crashes, …), best first, but for those that are to be left."""
    return _opened(db, now, ask)[0]


def _opened(
    db: Database, now: Instant, ask: Ask, *, deep: bool = True
) -> tuple[Iterator[Row], Limited | None]:
    streams: list[Iterator[Row]] = []
    for tenant, each in _scopes(ask):
        row = walks.first(db, tenant, each)
        if row is None:
            continue
        if row[1] is not None:
            return _limited(Limited(db, now, ask, row[1], deep=deep), ask)
        streams += walks.opened(db, now, tenant, each, row)
    ordered = streams[0] if len(streams) == 1 else heapq.merge(*streams)
    return _spared(ordered, ask.crashed) if ask.crashed else ordered, None


def _scopes(ask: Ask) -> list[tuple[str | None, str]]:
    """What is walked on its own: each type, or each type of each tenant; a name given twice counts once."""
    types, tenants = dict.fromkeys(ask.types), dict.fromkeys(ask.tenants or ())
    return [(None, each) for each in types] if ask.tenants is None else list(product(tenants, types))


def _limited(limited: Limited, ask: Ask) -> tuple[Iterator[Row], Limited]:
    def counted() -> Iterator[Row]:
        fitting = limited.fitting()
        for row in _spared(fitting, ask.crashed) if ask.crashed else fitting:
            limited.take(row)
            yield row

    return counted(), limited


def next_claim(db: Database, now: Instant, ask: Ask) -> Instant | None:
    """When a claim may next find something; or UNSURE, which a look at every lane would tell."""
    if db.surveyed and (known := openings.known(db, now, ask)) is not None:
        return known.at
    times: list[Instant | None] = []
    for tenant, each in _scopes(ask):
        row = walks.first(db, tenant, each)
        if row is None:
            continue
        if row[1] is not None:
            return openings.glance(db, now, ask, row[1])
        times += [walks.next_run_at(db, walk) for walk in walks.all_of(tenant, each)]
    return min((at for at in times if at is not None), default=None)


def _spared(rows: Iterator[Row], crashed: tuple[int, ...]) -> Iterator[Row]:
    # held[k - 1]: how many were taken that crashed k times or more. Above the list its last one counts.
    held = [0] * len(crashed)
    for row in rows:
        levels = min(row[3], len(crashed))
        if any(held[level] >= crashed[level] for level in range(levels)):
            continue
        for level in range(levels):
            held[level] += 1
        yield row


def found(db: Database, now: Instant, ask: Ask) -> bool | None:
    """Whether a claim would find anything; a look, no write. None: a look at every lane would tell."""
    if ask.limit <= 0 or (db.surveyed and openings.known(db, now, ask) is not None):
        return False
    rows, limited = _opened(db, now, ask, deep=False)
    if next(rows, None) is not None:
        return True
    return None if limited is not None and limited.unsure else False


def _chosen(db: Database, now: Instant, ask: Ask, clock: Callable[[], Instant]) -> tuple[list[str], Instant]:
    """The runs, and the instant of their lease, at which rates count them too.

    What limits hold back takes time to pass over, and a lease is as long as was asked for.
    """
    rows, limited = _opened(db, now, ask)
    chosen = [row[2] for row in islice(rows, ask.limit)]
    del rows  # from here on no cursor walks an index that changes
    if limited is not None:
        now = max(now, clock())
        limited.note(now)
    return chosen, now


def claim(db: Database, now: Instant, ask: Ask, clock: Callable[[], Instant]) -> list[Claim]:
    """Take them."""
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
    """The claim, and how many bytes of values it brings; none, and `unread`, if they are more than `most`."""
    run = row[0]
    again = row[11] > 1  # a row that only this claim has changed since its start has neither steps nor logs
    claim = Claim(
        id=UUID(run), type=row[1], tenant=row[2], params=row[3] or "null", fence=row[4], attempt=row[5],
        crashes=row[6], max_attempts=row[7], created_at=row[8], lease_until=row[9], timeout_at=row[10],
        logs=_logs(db, run) if again else 0,
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
    """Fill in the fields that most runs do not have."""
    kind, parent, cost, budget, labels, trace = msgspec.json.decode(rare)
    parent = None if parent is None else UUID(parent)
    return msgspec.structs.replace(
        claim, kind=kind, parent=parent, cost=cost, budget=budget, labels_json=labels, trace=trace or ""
    )


def _values(db: Database, run: str) -> Row:
    row = db.one(_SQL["values"], (run,))
    assert row is not None
    return row


def load(db: Database, now: Instant, lease: Lease, after: int, most: int) -> Loaded:
    """One page of what a held run has recorded."""
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
