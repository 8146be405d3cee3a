"""purge and stuck: remove expired runs for good, and find runs that nothing could ever wake."""

from __future__ import annotations

from uuid import UUID

from holdfast.contract import EVENT_KEEP_SECONDS, GONE_SECONDS
from holdfast.lifecycle import FINAL, OPEN, Status, StepKind
from holdfast.machine.children import tell_parent
from holdfast.machine.durations import micros
from holdfast.machine.rows import Owes, StepRow
from holdfast.records import Finding, Instant, Purged

from . import keys, page_sessions
from .limits import forget_claims
from .rows import EventRow, RunRow, State
from .view import MemoryView, open_waits

ROWS = 5000  # rows of the audit log, and keys, that one slice removes at most


def purge(state: State, ttl_seconds: float, deleted_seconds: float, limit: int, now: Instant) -> Purged:
    ttl, kept_deleted = micros(ttl_seconds), micros(deleted_seconds)
    expired = [row for row in state.runs.values() if _has_expired(row, now, ttl, kept_deleted)]
    free = [row for row in expired if _is_free(state, row)]
    runs = free[: max(0, limit)]
    runs += [row.first for row in runs if row.first is not None and row.first.present == row.id]
    _remove(state, runs, now)
    events = [event for event in state.events if _is_over(state, event, now)]
    _remove_events(state, events)
    gone = [each.worker for each in state.workers.values() if each.seen_at <= now - micros(GONE_SECONDS)]
    for worker in gone:
        del state.workers[worker]
    claims = forget_claims(state.limiting, now)
    audit, api_keys = keys.purge(state.keyring, ROWS, now)
    return Purged(
        runs=len(runs),
        events=len(events),
        workers=len(gone),
        claims=claims,
        audit=audit,
        api_keys=api_keys,
        sessions=page_sessions.purge(state.page_sessions, ROWS, now),
    )


def _has_expired(row: RunRow, now: Instant, ttl: int, kept_deleted: int) -> bool:
    if row.deleted_at is not None and row.deleted_at + kept_deleted <= now:
        return True
    if row.finished_at is None:
        return False
    return (row.finished_at + ttl if row.expires_at is None else row.expires_at) <= now


def _is_free(state: State, row: RunRow) -> bool:
    """Return True when the run may be removed. The first run of a chain is removed with the last one, at
    the end."""
    if row.present is not None or (row.first is not None and row.first.present == row.id):
        others = [one for one in state.runs.values() if one.first is row.head and one is not row]
        if row.present is not None or others or state.post.holds(row.head.id) or row.head.owes:
            return False
    return not row.owes & ~Owes.END and not _is_awaited(state, row) and not state.post.holds(row.id)


def _is_awaited(state: State, row: RunRow) -> bool:
    """Return True when a parent waits for the end of the run, which keeps the run.

    A run that is deleted and open will never end. It is removed, and its parent is told, unless the parent is
    deleted too.
    """
    return any(row.status in FINAL or parent.deleted_at is not None for parent, _ in _awaiting(state, row))


def _awaiting(state: State, row: RunRow) -> list[tuple[RunRow, StepRow]]:
    parent = None if row.parent is None else state.runs.get(row.parent)
    waits = [] if parent is None or parent.status in FINAL else open_waits(parent)
    return [(parent, wait) for wait in waits if parent is not None and wait.child == row.id]


def _remove(state: State, runs: list[RunRow], now: Instant) -> None:
    for row in runs:
        del state.runs[row.id]
        state.accounts.pop(row.id, None)
        if row.key is not None:
            del state.keys[row.tenant, row.key]
    gone = {row.id for row in runs}
    if gone:
        state.trail = [entry for entry in state.trail if entry.run not in gone]
        state.post.remove_of(gone)
        _remove_events(state, [event for event in state.events if event.run in gone])
    view = MemoryView(state, now)
    for row in runs:
        tell_parent(view, row.parent, row.parent_step, row.id)
    view.save()


def _is_over(state: State, event: EventRow, now: Instant) -> bool:
    """Return True when an event was delivered and its time is over. An addressed event lives as long as
    its run."""
    chain = None if event.run is None else state.runs.get(event.run)
    kept = micros(EVENT_KEEP_SECONDS if chain is not None else max(event.keep_seconds, EVENT_KEEP_SECONDS))
    return event.delivered and event.at + kept <= now and (chain is None or _is_used_up(chain, event))


def _is_used_up(chain: RunRow, event: EventRow) -> bool:
    """Return True when an earlier run of the chain, but not the first, has taken the event for good. Such
    events are removed, because a chain may have no end.
    """
    taken_by, _ = chain.receipts.get(event.seq, (chain.id, ""))
    return taken_by not in {chain.id, chain.present}


def _remove_events(state: State, gone: list[EventRow]) -> None:
    if gone:
        state.drop_events(gone)
        numbers = {event.seq for event in gone}
        for chain in [row for row in state.runs.values() if row.present is not None]:
            chain.receipts = {seq: by for seq, by in chain.receipts.items() if seq not in numbers}


def stuck(state: State, limit: int) -> list[UUID]:
    rows = (row for row in state.runs.values() if row.status in OPEN and row.deleted_at is None)
    return sorted(row.id for row in rows if not _has_a_way_on(row))[: max(0, limit)]


def _has_a_way_on(row: RunRow) -> bool:
    waits = any(_can_come(wait) for wait in open_waits(row))
    match row.status:
        case Status.PENDING:
            return row.run_at is not None
        case Status.LEASED:
            return row.lease_until is not None and row.leased_by is not None
        case Status.WAITING:
            return waits
        case _:
            return row.resume_to is Status.PENDING or (row.resume_to is Status.WAITING and waits)


def _can_come(wait: StepRow) -> bool:
    named = wait.due_at is not None or wait.topic is not None
    return named or wait.kind in {StepKind.APPROVAL, StepKind.CHILD}


def checkup() -> list[Finding]:
    return [
        Finding(
            level="warning",
            what="this store is in memory: all runs are gone when the process ends",
            mend="use sqlite:///holdfast.db for what must last",
        )
    ]
