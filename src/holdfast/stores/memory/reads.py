"""Reads: runs, steps and counts as callers see them, and when there is next something to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.contract import DUE_COUNTED, LIVE_SECONDS, SCALE_MAX
from holdfast.lifecycle import FINAL, OPEN, Status, StepKind, StepStatus
from holdfast.machine.claiming import unrecorded
from holdfast.machine.durations import micros
from holdfast.machine.rows import shown as shown_step
from holdfast.machine.settling import COME, lapses
from holdfast.records import (
    ChildCounts,
    Definition,
    Instant,
    Presence,
    Run,
    RunFilter,
    RunOutline,
    Stats,
    Step,
    moment,
)
from holdfast.records.shown import outline, without_values
from holdfast.records.sizes import run_bytes, shown_step_bytes
from holdfast.stores.claiming.served import can_run, unclaimable
from holdfast.stores.run_filter import matches

from . import schedules
from .counts import counts, scale
from .limits import capacities_of
from .rows import RunRow, State
from .view import open_waits


def shown(row: RunRow, state: State) -> Run:
    account = None if row.account is None else state.accounts.get(row.account)
    current = row.current() if row.is_plan else None
    return Run(
        id=row.id, tenant=row.tenant, type=row.type, kind=row.kind, status=row.status, params_json=row.params,
        result_json=row.result, error_json=row.error, last_error=row.last_error, priority=row.priority,
        run_at=moment(row.run_at), key=row.key, attempt=row.attempt,
        max_attempts=row.tried_of or row.max_attempts, crashes=row.crashes, fence=row.fence,
        leased_by=row.leased_by, lease_until=_moment(row.lease_until),
        waiting_on=tuple(map(shown_step, open_waits(row))), pause_asked_by=row.pause_asked_by,
        cursor=_cursor(row), current_step_seq=None if current is None else current.seq,
        current_step_name=None if current is None else current.key,
        chain=row.head.id, present=row.head.present or row.head.id,
        parent=row.parent, parent_step=row.parent_step, limit_key=row.limit_key,
        labels_json=row.labels, cost_units=row.cost, budget_units=row.budget, progress_json=row.progress,
        timeout_at=_moment(row.timeout_at), timeout_seconds=row.timeout_seconds,
        ttl_seconds=row.ttl_seconds, expires_at=_moment(row.expires_at),
        created_at=moment(row.created_at), updated_at=moment(row.updated_at),
        started_at=_moment(row.started_at), finished_at=_moment(row.finished_at),
        deleted_at=_moment(row.deleted_at), origin=row.origin, account=row.account,
        account_cost_units=None if account is None else account.spent,
        account_budget_units=None if account is None else account.budget,
    )  # fmt: skip


def shown_with_running(row: RunRow, state: State) -> Run:
    """Return the run with the steps that its holder executes now."""
    fence, running = row.running
    if row.status is not Status.LEASED or fence != row.fence:
        return shown(row, state)
    recorded = {one.step: row.steps[one.step] for one in running if one.step in row.steps}
    known = {key: (step.status, step.attempts) for key, step in recorded.items()}
    return msgspec.structs.replace(shown(row, state), running=unrecorded(running, known))


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)


def _cursor(row: RunRow) -> str | None:
    """Return the step with the latest outcome; for a plan, the current step, or the last one at its end."""
    if row.is_plan:
        step = row.current() or row.in_order()[-1]
        return step.key
    outcomes = [step for step in row.steps.values() if step.status in COME]
    return max(outcomes, key=lambda step: step.seq).key if outcomes else None


def steps(row: RunRow) -> list[Step]:
    """Return all steps. The current task of a plan shows the live status of its run, which is not stored
    twice."""
    live, current = _LIVE.get(row.status), row.current()
    shown = list(map(shown_step, row.in_order()))
    if (
        live is None
        or current is None
        or (current.kind, current.status) != (StepKind.TASK, StepStatus.PENDING)
    ):
        return shown
    now = msgspec.structs.replace(
        shown_step(current), status=live, attempts=row.attempt, error_json=row.error
    )
    return [now if step.key == current.key else step for step in shown]


def steps_page(found: list[Step], after: int, most: int | None) -> list[Step]:
    """Return the steps behind a seq, as many as fit into so many bytes."""
    later = [step for step in found if step.seq > after]
    return page(later, shown_step_bytes, len(later), most)


def steps_before(found: list[Step], before: int, most: int | None) -> list[Step]:
    """Return the steps before a seq, the newest first, as many as fit into so many bytes."""
    earlier = [step for step in reversed(found) if step.seq < before]
    return page(earlier, shown_step_bytes, len(earlier), most)


_LIVE = {Status.PENDING: StepStatus.READY, Status.LEASED: StepStatus.RUNNING}


def runs(state: State, where: RunFilter, limit: int, after: UUID | None) -> list[Run]:
    runs = (shown(row, state) for row in matching(state, where, after))
    return page(runs if where.values else map(without_values, runs), run_bytes, limit)


def outlines(state: State, where: RunFilter, limit: int, after: UUID | None) -> list[RunOutline]:
    found = islice(matching(state, where, after), max(0, limit))
    return [outline(shown(row, state)) for row in found]


def matching(state: State, where: RunFilter, after: UUID | None) -> Iterator[RunRow]:
    """Yield the runs of a filter, newest first."""
    rows = sorted(state.runs.values(), key=lambda row: row.id, reverse=True)
    return (row for row in rows if (after is None or row.id < after) and _matches(row, where))


def _matches(row: RunRow, where: RunFilter) -> bool:
    waits = where.waiting_on is None or any(wait.kind is where.waiting_on for wait in open_waits(row))
    return waits and matches(row, where)


def children(state: State, runs: Sequence[UUID], tenant: str | None, most: int) -> list[ChildCounts]:
    """Return the children of these runs by status, at most `most` of each run."""
    found = []
    for run in dict.fromkeys(run for run in runs if state.seen(run, tenant) is not None):
        kids = (row.status for row in state.runs.values() if row.parent == run and row.deleted_at is None)
        counted = Counter(islice(kids, most))
        if counted:
            by_status = {status.value: count for status, count in counted.items()}
            found.append(ChildCounts(run=run, by_status=by_status, more=next(kids, None) is not None))
    return found


def next_claim(
    state: State, types: Sequence[str], tenants: Sequence[str] | None, by: tuple[str, Instant]
) -> Instant | None:
    """Return when a claim may next find something. `by`: the runtime of the worker, and the present time."""
    runtime, now = by
    capacities = capacities_of(state, now)
    pending = (
        (row.run_at, capacities.opens_at(row.type, row.tenant, row.limit_key)) for row in state.runs.values()
        if row.status is Status.PENDING and row.deleted_at is None
        and row.type in types and (tenants is None or row.tenant in tenants)
        and capacities.rules.open_to(row.type, runtime)
    )  # fmt: skip
    claims = (max(run_at, opens_at) for run_at, opens_at in pending if opens_at is not None)
    return min(claims, default=None)


def next_chores(
    state: State, besides: Sequence[tuple[UUID, int]], *, wait_timeouts: bool
) -> dict[str, Instant | None]:
    """Return when each chore may next find something, and when a schedule is due, except those left out."""
    runs = [row for row in state.runs.values() if row.status not in FINAL]
    waits = ((row, wait) for row in runs for wait in open_waits(row))
    # Due at once, whatever time it was recorded at.
    undelivered = not all(event.delivered for event in state.events)
    owes = any(row.owes for row in state.runs.values())
    return {
        "expire_at": _first(row.lease_until + 1 for row in runs if row.lease_until is not None),
        "time_out_at": _first(row.timeout_at for row in runs),
        "lapse_at": _first(
            wait.due_at for row, wait in waits if lapses(row, wait, wait_timeouts=wait_timeouts)
        ),
        "deliver_at": 0 if undelivered or owes else None,
        "fire_at": _first(schedules.due_at(state, besides)),
    }


def _first(times: Iterable[Instant | None]) -> Instant | None:
    return min((at for at in times if at is not None), default=None)


def _live(state: State, now: Instant) -> list[Presence]:
    live = [worker for worker in state.workers.values() if worker.seen_at >= now - micros(LIVE_SECONDS)]
    return sorted(live, key=lambda worker: worker.worker)


def is_served(state: State, runs: Sequence[UUID], now: Instant) -> bool:
    """Return True when a live worker can claim any of these runs."""
    rows, rules, live = [state.runs.get(run) for run in runs], state.limiting.rules(), _live(state, now)
    return any(
        row is not None and can_run(worker, row.type, row.tenant, rules) for worker in live for row in rows
    )


def stats(state: State, now: Instant) -> Stats:
    workers = _live(state, now)
    due = [one for one in scale(state, now, None, SCALE_MAX).items if one.due]
    counted = {status.value: 0 for status in Status} | counts(state, now, None).by_status()
    return Stats(
        now=now,
        by_status=counted,
        workers=tuple(workers),
        oldest_due_at=min((one.oldest_due_at for one in due if one.oldest_due_at is not None), default=None),
        unclaimable=unclaimable(due, workers, state.limiting.rules()),
        undelivered=min(DUE_COUNTED, sum(not event.delivered for event in state.events))
        + min(DUE_COUNTED, sum(bool(row.owes) for row in state.runs.values())),
    )


def waiting_on(state: State, topic: str, tenant: str) -> list[UUID]:
    return sorted(
        row.id for row in state.runs.values()
        if row.status in OPEN and row.deleted_at is None and row.tenant == tenant
        and any(w.topic == topic for w in open_waits(row))
    )  # fmt: skip


def definitions(state: State, *, schemas: bool) -> list[Definition]:
    found = sorted(state.definitions.values(), key=lambda one: one.type)
    if schemas:
        return found
    return [msgspec.structs.replace(one, params_schema=None, result_schema=None) for one in found]
