"""claim, load, renew, lease_states and show_running: the leases of runs.

The order of the queue is explained in stores/sqlite/claiming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from holdfast.bounds import text_bytes
from holdfast.contract import START
from holdfast.lifecycle import Status
from holdfast.machine import claiming as machine
from holdfast.machine.durations import micros
from holdfast.machine.rows import holds, shown
from holdfast.records import (
    Answer,
    Ask,
    Claim,
    Instant,
    Lease,
    LeaseState,
    Loaded,
    Renewal,
    Running,
    Step,
)
from holdfast.stores.claiming.capacity import Capacities
from holdfast.stores.claiming.shares import Shares

from .limits import capacities_of, note_claims, note_turns
from .rows import RunRow, State, TrailRow, step_bytes
from .view import MemoryView


def claim(state: State, ask: Ask, now: Instant) -> list[Claim]:
    capacities = capacities_of(state, now)
    due = sorted(_claimable(state, ask, capacities, now), key=lambda row: (row.priority, row.run_at, row.id))
    shares = state.limiting.shares(capacities.rules, ask, {row.tenant for row in due}, now)
    taken: list[RunRow] = []
    for row in _in_turn(due, shares) if capacities.rules.weighs else due:
        if len(taken) >= ask.limit:
            break
        named = (row.type, row.tenant, row.limit_key)
        if not capacities.full(*named) and not _too_many_crashed(ask.crashed, taken, row):
            taken.append(row)
            capacities.take(*named)
            shares.take(row.tenant)
    note_claims(state, capacities, now)
    if taken and capacities.rules.weighs:
        note_turns(state.limiting, ask, shares, now)
    left, claims, view = ask.bytes, [], MemoryView(state, now)
    for row in taken:
        machine.claim(view, row, ask.worker, now + micros(ask.lease_seconds))
        size = _size(row)
        claims.append(_shown(state, row, read=size <= left))
        left -= size if size <= left else 0
    view.save()
    return claims


def _size(row: RunRow) -> int:
    return text_bytes(row.params) + text_bytes(row.labels) + sum(map(step_bytes, row.steps.values()))


def _in_turn(due: list[RunRow], shares: Shares) -> Iterator[RunRow]:
    """Yield runs by turns of the tenants. The caller's `take` moves a tenant on."""
    lanes: dict[str, deque[RunRow]] = {}
    for row in due:
        lanes.setdefault(row.tenant, deque()).append(row)
    while lanes:
        tenant = min(lanes, key=shares.turn)
        yield lanes[tenant].popleft()
        if not lanes[tenant]:
            del lanes[tenant]


def _claimable(state: State, ask: Ask, capacities: Capacities, now: Instant) -> list[RunRow]:
    return [
        row
        for row in state.runs.values()
        if row.status is Status.PENDING and row.run_at <= now and row.deleted_at is None
        and row.type in ask.types and (ask.tenants is None or row.tenant in ask.tenants)
        and capacities.rules.open_to(row.type, ask.runtime)
    ]  # fmt: skip


def _too_many_crashed(allowed: Sequence[int] | None, taken: Sequence[RunRow], row: RunRow) -> bool:
    """Return True when for some k the claim already has as many runs with k crashes as the worker accepts."""
    if not allowed:
        return False
    return any(
        sum(other.crashes >= k for other in taken) >= allowed[min(k, len(allowed)) - 1]
        for k in range(1, row.crashes + 1)
    )


def _shown(state: State, row: RunRow, *, read: bool) -> Claim:
    assert row.lease_until is not None
    account = None if row.account is None else state.accounts.get(row.account)
    return Claim(
        id=row.id, type=row.type, tenant=row.tenant, params=row.params if read else "null", fence=row.fence,
        attempt=row.attempt, crashes=row.crashes, max_attempts=row.max_attempts,
        created_at=row.created_at, lease_until=row.lease_until, timeout_at=row.timeout_at, run_at=row.run_at,
        kind=row.kind, parent=row.parent, cost=row.cost, budget=row.budget,
        account=row.account, left=None if account is None else account.budget - account.spent,
        labels_json=row.labels if read else None, trace=row.trace, unread=not read,
        steps=tuple(map(shown, row.in_order())) if read else (),
        logs=max(map(_log_number, row.logs), default=0),
    )  # fmt: skip


def load(state: State, lease: Lease, after: int, most: int, now: Instant) -> Loaded:
    row = state.runs.get(lease.run)
    if row is None or not holds(row, lease.fence, now):
        return Loaded(answer=machine.lost(row))
    first = after == START
    left = most - (text_bytes(row.params) + text_bytes(row.labels) if first else 0)
    steps: list[Step] = []
    rows = [step for step in row.in_order() if step.seq > after]
    for step in rows:
        left -= step_bytes(step)
        if left < 0 and steps:
            break
        steps.append(shown(step))
    return Loaded(
        answer=Answer.APPLIED,
        params=row.params if first else None,
        labels_json=row.labels if first else None,
        steps=tuple(steps),
        more=len(steps) < len(rows),
    )


def renew(state: State, worker: str, leases: Sequence[Lease], lease_seconds: float, now: Instant) -> Renewal:
    named = {(lease.run, lease.fence) for lease in leases}
    strays = sorted(
        (row.id, row.fence)
        for row in state.runs.values()
        if row.leased_by == worker and (row.id, row.fence) not in named
    )
    view, until = MemoryView(state, now), now + micros(lease_seconds)
    answers = tuple(machine.renew(view, view.run(lease.run), lease, worker, until) for lease in leases)
    view.save()
    return Renewal(held=answers, strays=tuple(strays))


def lease_states(state: State, leases: Sequence[tuple[UUID, int]], now: Instant) -> list[LeaseState]:
    return [machine.lease_state(state.runs.get(run), fence, now) for run, fence in leases]


def show_running(state: State, rows: Sequence[Running], now: Instant) -> list[bool]:
    view = MemoryView(state, now)
    written = [machine.show_running(view, view.run(row.run), row) for row in rows]
    view.save()
    return written


def _log_number(entry: TrailRow) -> int:
    """Return the number of a log row. Only rows of the workflow code have one, not those of its steps."""
    if entry.type != "log":
        return 0
    data = _decoded(entry.data) if isinstance(entry.data, str) else entry.data
    number = data.get("log_no") if isinstance(data, dict) else None
    return number if type(number) is int else 0


def _decoded(data: str) -> object:
    """Decode a log row. It may be any JSON, even JSON that cannot be decoded; then return None."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):  # msgspec's own errors are of the first kind
        return None
