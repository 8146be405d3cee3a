"""cancel, pause, resume, rewind, retry_run: what people do to a run."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import Move, Status, StepStatus, allows
from holdfast.records import Instant, Json

from .rows import RunRow, State, check


def find(state: State, run: UUID, tenant: str | None) -> RunRow:
    row = state.runs.get(run)
    if row is None or row.deleted_at is not None or tenant not in {None, row.tenant}:
        raise UnknownRun(run)
    return row


def _find_for(move: Move, state: State, run: UUID, tenant: str | None) -> RunRow:
    row = find(state, run, tenant)
    if not allows(move, row.status):
        raise IllegalMove(run, move, row.status)
    return row


def cancel(state: State, run: UUID, tenant: str | None, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.CANCEL, state, run, tenant)
    if row.status is not Status.CANCELLED:
        row.fence += 1
        row.finish(Status.CANCELLED, now)
        state.note(row, "cancelled", now, by=by)
        check(row)
    return row


def pause(state: State, run: UUID, tenant: str | None, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.PAUSE, state, run, tenant)
    if row.status is Status.LEASED:
        row.pause_asked_by = by if row.pause_asked_by is None else row.pause_asked_by
    elif row.status is not Status.PAUSED:
        row.pause(row.status)
        state.note(row, "paused", now, by=by)
    check(row)
    return row


def resume(state: State, run: UUID, tenant: str | None, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.RESUME, state, run, tenant)
    if row.status is Status.LEASED and row.pause_asked_by is None:
        raise IllegalMove(run, Move.RESUME, row.status, "no pause is asked for")
    if row.status is Status.LEASED:
        row.pause_asked_by = None
    else:
        assert row.resume_to is not None
        row.status, row.resume_to = row.resume_to, None
        state.note(row, "resumed", now, by=by, status=row.status)
    check(row)
    return row


def rewind(state: State, run: UUID, step: str, tenant: str | None, *, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.REWIND, state, run, tenant)
    if step not in row.steps:
        raise UnknownStep(f"run {run} has no step {step!r}; it has: {', '.join(_in_order(row)) or 'none'}")
    seq = row.steps[step].seq
    forgotten = _forget(row, {key for key, other in row.steps.items() if other.seq >= seq})
    row.begin_anew(now)
    if row.status is Status.PAUSED:
        row.pause(Status.PENDING)
    else:
        row.status = Status.PENDING
    state.note(row, "rewound", now, step=step, forgotten=forgotten, status=row.status, by=by)
    check(row)
    return row


def retry_run(state: State, run: UUID, tenant: str | None, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.RETRY_RUN, state, run, tenant)
    forgotten = _forget(row, {_blamed(row.error)} & row.steps.keys())
    row.status = Status.PENDING
    row.begin_anew(now)
    state.note(row, "retried", now, by=by, status=row.status, forgotten=forgotten)
    check(row)
    return row


def _in_order(row: RunRow) -> list[str]:
    return sorted(row.steps, key=lambda key: row.steps[key].seq)


def _forget(row: RunRow, keys: set[str]) -> list[str]:
    """Cancelled steps go too: they have no outcome that an execution could be given."""
    keys = keys | {key for key, step in row.steps.items() if step.status is StepStatus.CANCELLED}
    forgotten = [key for key in _in_order(row) if key in keys]
    row.forget(keys)
    return forgotten


def _blamed(error: Json | None) -> str:
    """The step that made the run fail, as its error names it; else none."""
    decoded = msgspec.json.decode(error) if error is not None else None
    return str(decoded.get("step") or "") if isinstance(decoded, dict) else ""
