"""The steps of an item: a recorded outcome never changes, an open step may get its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.records import Instant, Item, Json, StepWrite

from .durations import micros
from .plans import opening
from .rows import RunRow, StepRow, raw
from .starting import start_one
from .view import Data, R, View

replace = msgspec.structs.replace
OUTCOMES = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


@dataclass(slots=True)
class StepEffects:
    """The effects of the steps of one item. `opened`, `done`: the last trail row of that kind."""

    kept: list[tuple[str, Json | None]] = field(default_factory=list)
    progress: bool = False
    silent: bool = True  # this item has written no step row
    ready: list[StepWrite] = field(default_factory=list)  # the steps that wait for a retry
    opened: Data | None = None
    done: Data | None = None


def record_steps(view: View[R], run: R, item: Item) -> StepEffects:
    """Write the steps of an item. The effect depends on the row that the key already has.

    - No row: a new row, with the run's next seq.
    - Settled: the row keeps its first value, which is returned in `kept`; it adds no cost.
    - `ready`: the row takes the new outcome and the next seq; cost adds up.
    - `waiting`, written as waiting again: the row stays as it is, with its first due_at.

    CANCELLED gives up a wait: an outcome that was not read is undone, and its event is free for another wait
    of the run. WAITING opens such a wait again, with its old watermark. The due_at of an opened wait is as
    given, else now + delay_seconds, else none. A gate that is opened has started_at now.

    `child`: that run is started with the row, as a child of this one (parent, parent_step), its id in the
    row. A key with a row starts none. WAITING: `waits` of the row grows by one. SUCCEEDED: the child is only
    started, and there is no wait that could ever be settled.

    The run's cost grows by the cost of every step that was not kept.

    Trail: SUCCEEDED writes step_succeeded, FAILED step_failed, a new WAITING `waiting` (of a gate:
    approval_opened), CANCELLED `cancelled` with the step. child_started comes before the row's own.
    """
    effects = StepEffects()
    for write in item.steps:
        existing = view.step(run, write.key)
        if write.status is StepStatus.CANCELLED:
            if existing is None:
                continue
            view.forget_receipts(run, write.key)
        elif existing is not None and _stays(existing.status, write.status):
            effects.kept.append((write.key, existing.output))
            continue
        elif existing is not None and existing.status is StepStatus.WAITING and write.status not in OUTCOMES:
            continue
        if write.child is not None:
            _start_child(view, run, write)
        if run.kind == "plan" and existing is not None:
            _update(run, existing, write, item, view.now)
        else:
            _put(view, run, existing, write, item)
        run.cost += write.cost
        _note(view, run, write, effects)
    return effects


def _stays(existing: StepStatus, written: StepStatus) -> bool:
    """Return True when the row keeps its value: a settled row does, except a wait that was given up and
    is reopened."""
    reopened = existing is StepStatus.CANCELLED and written is StepStatus.WAITING
    return existing in SETTLED and not reopened


def _start_child(view: View[R], run: R, write: StepWrite) -> None:
    assert write.child is not None
    view.note(run, "child_started", step=write.key, child=str(write.child.id))
    start_one(view, replace(write.child, parent=run.id, parent_step=write.key), view.newest_note())


def _put(view: View[R], run: R, existing: StepRow | None, write: StepWrite, item: Item) -> None:
    """Write a new row, or a new outcome of an open row, with the next number."""
    now, seq = view.now, view.next_seq(run)
    started_at = now if write.kind is StepKind.APPROVAL else write.started_at
    finished_at = now if write.status in SETTLED else None
    child = None if write.child is None else write.child.id
    waits = int(write.kind is StepKind.CHILD and write.status is StepStatus.WAITING)
    if existing is None:
        row = StepRow(
            seq, write.key, write.kind, write.status, write.attempts, write.output, write.error, write.cost,
            write.topic, _due_at(now, write), item.fence, item.number, started_at, finished_at, ask=write.ask,
            digest=write.digest, child=child, waits=waits, on_timeout=write.on_timeout,
            watermark=view.newest_event() if write.since_now else 0,
        )  # fmt: skip
        view.put(run, row)
        return
    existing.seq, existing.kind, existing.status, existing.attempts = (
        seq,
        write.kind,
        write.status,
        write.attempts,
    )
    existing.output, existing.error, existing.cost = write.output, write.error, existing.cost + write.cost
    existing.topic, existing.due_at = write.topic, _due_at(now, write)
    existing.fence, existing.number = item.fence, item.number
    existing.started_at, existing.finished_at = started_at, finished_at
    existing.ask, existing.digest, existing.on_timeout = write.ask, write.digest, write.on_timeout
    existing.child, existing.waits = existing.child if child is None else child, existing.waits + waits


def _update(run: RunRow, step: StepRow, write: StepWrite, item: Item, now: Instant) -> None:
    """Write the row of a plan, which exists since the start and keeps its number. A retry only adds its
    cost."""
    step.cost += write.cost
    if write.status is StepStatus.READY:
        return
    step.status, step.attempts, step.wake = write.status, write.attempts, None
    step.output, step.error = write.output, write.error
    step.fence, step.number, step.started_at = run.fence, item.number, write.started_at
    step.finished_at = now if write.status in SETTLED else None
    if write.status is StepStatus.WAITING:
        step.due_at, step.topic, step.waits = _due_at(now, write), write.topic, step.waits + 1


def _due_at(now: Instant, write: StepWrite) -> Instant | None:
    if write.due_at is None and write.delay_seconds is not None:
        return now + micros(write.delay_seconds)
    return write.due_at


def _note(view: View[R], run: R, write: StepWrite, effects: StepEffects) -> None:
    match write.status:
        case StepStatus.SUCCEEDED:
            effects.done = view.note(run, "step_succeeded", step=write.key)
        case StepStatus.FAILED:
            view.note(run, "step_failed", step=write.key, error=raw(write.error))
        case StepStatus.WAITING:
            effects.opened = view.note(run, opening(write.kind), step=write.key, kind=write.kind)
        case StepStatus.CANCELLED:
            view.note(run, "cancelled", step=write.key)
        case _:
            effects.ready.append(write)
            return
    effects.silent = False
    effects.progress = effects.progress or write.status in OUTCOMES
