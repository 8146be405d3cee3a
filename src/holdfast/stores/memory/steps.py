"""The step rows of a commit: what was recorded stands, what is open may take its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.errors import UsageError
from holdfast.lifecycle import SETTLED, WAITS, Move, StepKind, StepStatus
from holdfast.records import Instant, Item, Json, StepWrite
from holdfast.stores.durations import micros

from .rows import RunRow, State, StepRow, TrailRow
from .start import start

replace = msgspec.structs.replace
WRITABLE = SETTLED | {StepStatus.READY, StepStatus.WAITING}
OUTCOMES = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


@dataclass(slots=True)
class Recorded:
    """What the steps of one item came to."""

    kept: list[tuple[str, Json | None]] = field(default_factory=list)
    progress: bool = False
    ready: list[str] = field(default_factory=list)  # the steps that back off
    last_opened: TrailRow | None = None
    done: TrailRow | None = None


def refuse_bad_steps(move: Move, steps: Sequence[StepWrite]) -> None:
    for write in steps:
        if write.status is StepStatus.READY and move is not Move.RETRY:
            raise UsageError(f"step {write.key!r} is to be tried again: only a retry may say so, no {move}")
        micros(write.delay_seconds or 0.0)
        if write.kind not in set(StepKind):
            raise UsageError(f"step {write.key!r} is of no known kind: {write.kind!r}")
        if write.status not in WRITABLE:
            raise UsageError(f"step {write.key!r} cannot be written as {write.status!r}")
        task_waits = (move, write.kind, write.status) == (Move.PARK, StepKind.TASK, StepStatus.WAITING)
        if (
            write.status in {StepStatus.WAITING, StepStatus.CANCELLED}
            and write.kind not in WAITS
            and not task_waits
        ):
            raise UsageError(f"step {write.key!r} of kind {write.kind!r} cannot wait")


def record_steps(state: State, row: RunRow, item: Item, now: Instant) -> Recorded:
    recorded = Recorded()
    for write in item.steps:
        stands = row.steps.get(write.key)
        if write.status is StepStatus.CANCELLED:
            if stands is None:
                continue
            row.receipts = {event: key for event, key in row.receipts.items() if key != write.key}
        elif stands is not None and _stays(stands.status, write.status):
            recorded.kept.append((write.key, stands.output))
            continue
        elif stands is not None and stands.status is StepStatus.WAITING and write.status not in OUTCOMES:
            continue
        if write.child is not None:
            state.note(row, "child_started", now, step=write.key, child=str(write.child.id))
            start(state, (replace(write.child, parent=row.id, parent_step=write.key),), now)
        if row.is_plan:
            _update(row, write, now)
        else:
            _put(state, row, write, now)
        _tell(state, row, write, now, recorded)
    return recorded


def _stays(stands: StepStatus, written: StepStatus) -> bool:
    """What is settled keeps its value; only a wait that was given up may be opened anew."""
    reopened = stands is StepStatus.CANCELLED and written is StepStatus.WAITING
    return stands in SETTLED and not reopened


def _put(state: State, row: RunRow, write: StepWrite, now: Instant) -> None:
    before = row.steps.get(write.key)
    due_at = write.due_at
    if due_at is None and write.delay_seconds is not None:
        due_at = now + micros(write.delay_seconds)
    row.cost += write.cost
    row.steps[write.key] = StepRow(
        seq=row.next_seq(), key=write.key, kind=write.kind, status=write.status, attempts=write.attempts,
        output=write.output, error=write.error, cost=write.cost + (before.cost if before else 0),
        topic=write.topic, due_at=due_at, fence=row.fence,
        started_at=now if write.kind is StepKind.APPROVAL else write.started_at,
        finished_at=now if write.status in SETTLED else None,
        mark=before.mark if before else state.event_seq if write.since_now else 0,
        ask=write.ask, digest=write.digest, on_timeout=write.on_timeout,
        child=write.child.id if write.child is not None else before.child if before else None,
        waits=(before.waits if before else 0) + _waits_for_child(write),
    )  # fmt: skip


def _waits_for_child(write: StepWrite) -> bool:
    """Counted, so that the step of a child that was only started is not taken for a wait that came."""
    return write.kind is StepKind.CHILD and write.status is StepStatus.WAITING


def _update(row: RunRow, write: StepWrite, now: Instant) -> None:
    """A plan's row is there since the start, and keeps its number."""
    step, settled = row.steps[write.key], write.status in SETTLED
    if write.status is StepStatus.READY:  # a try that failed: why it was called stays, what it cost is added
        step.cost, row.cost = step.cost + write.cost, row.cost + write.cost
        return
    step.status, step.attempts, step.wake = write.status, write.attempts, None
    step.output, step.error, step.cost = write.output, write.error, step.cost + write.cost
    step.fence, step.started_at, step.finished_at = row.fence, write.started_at, now if settled else None
    row.cost += write.cost
    if write.status is StepStatus.WAITING:
        delay = write.delay_seconds
        step.due_at = now + micros(delay) if write.due_at is None and delay is not None else write.due_at
        step.topic, step.waits = write.topic, step.waits + 1


def _tell(state: State, row: RunRow, write: StepWrite, now: Instant, recorded: Recorded) -> None:
    match write.status:
        case StepStatus.SUCCEEDED:
            recorded.done = state.note(row, "step_succeeded", now, step=write.key)
        case StepStatus.FAILED:
            error = None if write.error is None else msgspec.Raw(write.error.encode())
            state.note(row, "step_failed", now, step=write.key, error=error)
        case StepStatus.WAITING:
            state.listen(row, row.steps[write.key])
            opened = "approval_opened" if write.kind is StepKind.APPROVAL else "waiting"
            recorded.last_opened = state.note(row, opened, now, step=write.key, kind=write.kind)
        case StepStatus.CANCELLED:
            state.note(row, "cancelled", now, step=write.key)
        case _:
            recorded.ready.append(write.key)
    recorded.progress |= write.status in OUTCOMES
