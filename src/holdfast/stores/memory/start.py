"""start, publish, append_step: intents become runs, each once; a plan's steps become rows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import Conflict, DuplicateRun, HoldfastError, IllegalMove, KeyReused, UnknownRun
from holdfast.lifecycle import FINAL, StepKind, StepStatus
from holdfast.records import (
    MAX_ATTEMPTS,
    MAX_CRASHES,
    Definition,
    Instant,
    NewRun,
    PlanStep,
    Started,
)
from holdfast.stores.durations import bounded, micros
from holdfast.stores.plans import refuse_changed

from .rows import RunRow, State, StepRow, check
from .settling import apply, come_to


def start(
    state: State, runs: Sequence[NewRun], now: Instant, by: RunRow | None = None
) -> list[Started | HoldfastError]:
    """`by`: the run whose commit starts them."""
    for new in runs:
        _refuse_bad(new)
    fence = state.trail_seq  # greater than all there were, for each growth of a fence is a row of the trail
    return [_start_one(state, new, fence, now, by) for new in runs]


def _refuse_bad(new: NewRun) -> None:
    """Find bad content before the first write: all of them are one commit."""
    for seconds in (new.delay_seconds, new.timeout_seconds, new.ttl_seconds):
        micros(seconds or 0.0)


def _start_one(
    state: State, new: NewRun, fence: int, now: Instant, by: RunRow | None
) -> Started | HoldfastError:
    if new.key is not None and (taken := state.keys.get((new.tenant, new.key))) is not None:
        same = state.runs[taken].digest == new.digest
        return Started(taken, created=False) if same else KeyReused(new.key, taken)
    if new.id in state.runs:
        return DuplicateRun(new.id)
    if new.parent is not None and not _has_parent(state, new, by):
        return UnknownRun(new.parent)
    row = _row(state, new, fence, now)
    check(row)
    state.runs[row.id] = row
    if row.key is not None:
        state.keys[row.tenant, row.key] = row.id
    steps = state.definitions[row.type].steps if row.is_plan else ()
    state.note(
        row, "created", now, type=row.type, **({"steps": [step.name for step in steps]} if steps else {})
    )
    if steps:
        insert_plan(row, steps)
        apply(state, row, come_to(state, row, None, now), now)
        check(row)
    return Started(row.id, created=True)


def _has_parent(state: State, new: NewRun, by: RunRow | None) -> bool:
    """What a child goes on as is a child of the same parent, though that may be gone by now."""
    if by is not None and (new.parent, new.tenant) == (by.parent, by.tenant):
        return True
    parent = state.runs.get(new.parent) if new.parent is not None else None
    return parent is not None and parent.deleted_at is None and parent.tenant == new.tenant


def follow(state: State, before: RunRow, new: NewRun) -> None:
    """A run that a child goes on as takes its place: what waits for the one waits for the other now."""
    parent = None if new.parent is None else state.runs.get(new.parent)
    step = None if parent is None else parent.steps.get(new.parent_step or "")
    if step is not None and step.child == before.id:
        step.child = new.id


def insert_plan(row: RunRow, steps: Sequence[PlanStep]) -> None:
    """All rows at once; their order is their number."""
    row.kind, row.seq = "plan", len(steps) - 1
    for seq, step in enumerate(steps):
        attempts = step.max_attempts or row.max_attempts if step.kind is StepKind.TASK else None
        row.steps[step.name] = StepRow(
            seq=seq, key=step.name, kind=step.kind, status=StepStatus.PENDING, max_attempts=attempts,
            topic=step.topic, timeout_seconds=step.timeout_seconds, ask=step.ask, digest=step.digest,
            on_timeout=step.on_timeout,
        )  # fmt: skip


def append_step(state: State, row: RunRow, name: str, max_attempts: int | None, now: Instant) -> StepRow:
    if row.status in FINAL:
        raise IllegalMove(row.id, "append_step", row.status)
    if not row.is_plan:
        raise Conflict(f"run {row.id} is no plan: its steps are what its code asks for")
    attempts, there = max_attempts or row.max_attempts, row.steps.get(name)
    if there is not None and not _is_added_again(state, row, there, attempts):
        raise Conflict(f"run {row.id} has a step {name!r} already: give the new one another name")
    step = StepRow(
        seq=row.next_seq() if there is None else there.seq, key=name, kind=StepKind.TASK,
        status=StepStatus.PENDING, max_attempts=attempts,
    )  # fmt: skip
    if there is None:
        row.steps[name] = step
        state.note(row, "step_added", now, step=name)
    return step


def _is_added_again(state: State, row: RunRow, there: StepRow, attempts: int) -> bool:
    """Whether whoever added the last row did not hear the answer."""
    is_last = there is row.in_order()[-1]
    as_then = (there.status, there.max_attempts) == (StepStatus.PENDING, attempts)
    added = [entry.data for entry in state.trail if (entry.run, entry.type) == (row.id, "step_added")]
    return is_last and as_then and {"step": there.key} in added


def _row(state: State, new: NewRun, fence: int, now: Instant) -> RunRow:
    known = state.definitions.get(new.type, Definition(type=new.type))
    timeout = known.timeout_seconds if new.timeout_seconds is None else new.timeout_seconds
    run_at = new.run_at if new.run_at is not None else now + micros(new.delay_seconds or 0)
    return RunRow(
        id=new.id, tenant=new.tenant, type=new.type, params=new.params, digest=new.digest, key=new.key,
        priority=new.priority, run_at=run_at,
        max_attempts=_attempts(new, known), max_crashes=MAX_CRASHES,
        timeout_seconds=None if timeout is None else bounded(timeout),
        timeout_at=None if timeout is None else now + micros(timeout),
        ttl_seconds=None if new.ttl_seconds is None else bounded(new.ttl_seconds),
        budget=known.budget if new.budget is None else new.budget, limit_key=new.limit_key,
        kind=known.kind, parent=new.parent, parent_step=new.parent_step, labels=new.labels, created_at=now,
        updated_at=now, mark=state.event_seq, fence=fence,
    )  # fmt: skip


def _attempts(new: NewRun, known: Definition) -> int:
    return new.max_attempts if new.max_attempts is not None else known.max_attempts or MAX_ATTEMPTS


def publish(state: State, definitions: Sequence[Definition]) -> None:
    for definition in definitions:
        refuse_changed(state.definitions.get(definition.type), definition)
    for definition in definitions:
        state.definitions[definition.type] = definition
