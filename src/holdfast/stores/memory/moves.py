"""cancel, pause, resume, rewind, retry_run: what people do to a run."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.errors import IllegalMove, UnknownRun, UnknownStep
from holdfast.lifecycle import OPEN, Move, Status, StepKind, StepStatus, allows
from holdfast.records import Instant, Json

from . import children
from .rows import Owes, RunRow, State, StepRow, check
from .settling import apply, come_to


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


def cancel(
    state: State, run: UUID, tenant: str | None, by: str, now: Instant, *, with_children: bool
) -> RunRow:
    row = _find_for(Move.CANCEL, state, run, tenant)
    children.cancel(state, row, by, now, children=with_children)
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
        entry = state.note(row, "resumed", now, by=by, status=row.status)
        if row.is_plan:
            attempt, crashes = row.attempt, row.crashes
            apply(state, row, come_to(state, row, None, now), now)
            row.attempt, row.crashes = attempt, crashes
            assert isinstance(entry.data, dict)
            entry.data["status"] = row.status if row.status in OPEN else Status.PENDING
    check(row)
    return row


def rewind(
    state: State, run: UUID, step: str, tenant: str | None, *, by: str, now: Instant, with_children: bool
) -> RunRow:
    row = _find_for(Move.REWIND, state, run, tenant)
    current = row.current()
    begun = [one.key for one in row.in_order() if current is None or one.seq <= current.seq]
    if step not in begun:
        raise UnknownStep(f"run {run} has no step {step!r}; it has: {', '.join(begun) or 'none'}")
    seq = row.steps[step].seq
    forgotten = _forget(row, {key for key in begun if row.steps[key].seq >= seq}, orphans=with_children)
    row.begin_anew(now)
    if row.status is Status.PAUSED:
        row.pause(Status.PENDING)
    else:
        row.status = Status.PENDING
    state.note(row, "rewound", now, step=step, forgotten=forgotten, status=row.status, by=by)
    _go_on(state, row, now)
    check(row)
    return row


def retry_run(state: State, run: UUID, tenant: str | None, by: str, now: Instant) -> RunRow:
    row = _find_for(Move.RETRY_RUN, state, run, tenant)
    current = row.current()
    failed = _blamed(row.error) if current is None else current.key
    forgotten = _forget(row, {failed} & row.steps.keys(), orphans=True)
    row.status = Status.PENDING
    row.begin_anew(now)
    state.note(row, "retried", now, by=by, status=row.status, forgotten=forgotten)
    _go_on(state, row, now)
    check(row)
    return row


def _go_on(state: State, row: RunRow, now: Instant) -> None:
    """A plan's row that is current again may be a gate."""
    if row.is_plan and row.status is Status.PENDING:
        apply(state, row, come_to(state, row, None, now), now)


def _forget(row: RunRow, keys: set[str], *, orphans: bool) -> list[str]:
    """Cancelled steps go too: they have no outcome that one could be given. A plan's rows begin anew."""
    keys = keys | {key for key, step in row.steps.items() if step.status is StepStatus.CANCELLED}
    forgotten = [step for step in row.in_order() if step.key in keys]
    if orphans and any(step.child is not None for step in forgotten):
        row.owes |= Owes.ORPHANS
    row.forget(keys)
    if row.is_plan:
        row.steps |= {step.key: _as_planned(step) for step in forgotten}
    return [step.key for step in forgotten]


def _as_planned(step: StepRow) -> StepRow:
    return StepRow(
        seq=step.seq, key=step.key, kind=step.kind, status=StepStatus.PENDING, max_attempts=step.max_attempts,
        topic=step.topic if step.kind is StepKind.EVENT else None, timeout_seconds=step.timeout_seconds,
        ask=step.ask, digest=step.digest, on_timeout=step.on_timeout,
    )  # fmt: skip


def _blamed(error: Json | None) -> str:
    """The step that made the run fail, as its error names it; else none."""
    decoded = msgspec.json.decode(error) if error is not None else None
    return str(decoded.get("step") or "") if isinstance(decoded, dict) else ""
