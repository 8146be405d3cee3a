"""The steps that an item brings: what was recorded stands, what is open may take its outcome."""

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
class Recorded:
    """What the steps of one item came to. `opened`, `done`: the last trail row of that kind."""

    kept: list[tuple[str, Json | None]] = field(default_factory=list)
    progress: bool = False
    silent: bool = True  # no step row stands under this item
    ready: list[StepWrite] = field(default_factory=list)  # the steps that back off
    opened: Data | None = None
    done: Data | None = None


def record_steps(view: View[R], run: R, item: Item) -> Recorded:
    """Write the steps of an item. What stands under a key decides.

    Nothing: a new row, under the run's next seq.
    Settled: the row keeps its first value, which is returned in `kept`; it adds no cost.
    `ready`: the row takes the new outcome and the next seq; cost adds up.
    `waiting`, written as waiting again: the row stays as it is, its first due_at kept.

    CANCELLED gives a wait up: what it was settled with, unread, is undone, and its event is free for another
    wait of the run. WAITING opens such a wait anew, its `since` mark kept. An opened wait's due_at is as
    given, else now + delay_seconds, else none. A gate that is opened has started_at now.

    `child`: that run is started with the row, as a child of this one (parent, parent_step), its id in the
    row. A key that stands starts none. WAITING: `waits` of the row grows by one. SUCCEEDED: the child is only
    started, and there is no wait that could ever be settled.

    The run's cost grows by the cost of every step that was not kept.

    Trail: SUCCEEDED writes step_succeeded, FAILED step_failed, a new WAITING `waiting` (of a gate:
    approval_opened), CANCELLED `cancelled` with the step. child_started comes before the row's own.
    """
    recorded = Recorded()
    for write in item.steps:
        stands = view.step(run, write.key)
        if write.status is StepStatus.CANCELLED:
            if stands is None:
                continue
            view.forget_receipts(run, write.key)
        elif stands is not None and _stays(stands.status, write.status):
            recorded.kept.append((write.key, stands.output))
            continue
        elif stands is not None and stands.status is StepStatus.WAITING and write.status not in OUTCOMES:
            continue
        if write.child is not None:
            _start_child(view, run, write)
        if run.kind == "plan" and stands is not None:
            _update(run, stands, write, item, view.now)
        else:
            _put(view, run, stands, write, item)
        run.cost += write.cost
        _tell(view, run, write, recorded)
    return recorded


def _stays(stands: StepStatus, written: StepStatus) -> bool:
    """What is settled keeps its value; only a wait that was given up may be opened anew."""
    reopened = stands is StepStatus.CANCELLED and written is StepStatus.WAITING
    return stands in SETTLED and not reopened


def _start_child(view: View[R], run: R, write: StepWrite) -> None:
    assert write.child is not None
    view.note(run, "child_started", step=write.key, child=str(write.child.id))
    start_one(view, replace(write.child, parent=run.id, parent_step=write.key), view.newest_note())


def _put(view: View[R], run: R, stands: StepRow | None, write: StepWrite, item: Item) -> None:
    """A new row, or a new outcome for one that is open, under the next number."""
    now, seq = view.now, view.next_seq(run)
    started_at = now if write.kind is StepKind.APPROVAL else write.started_at
    finished_at = now if write.status in SETTLED else None
    child = None if write.child is None else write.child.id
    waits = int(write.kind is StepKind.CHILD and write.status is StepStatus.WAITING)
    if stands is None:
        row = StepRow(
            seq, write.key, write.kind, write.status, write.attempts, write.output, write.error, write.cost,
            write.topic, _due_at(now, write), item.fence, item.number, started_at, finished_at, ask=write.ask,
            digest=write.digest, child=child, waits=waits, on_timeout=write.on_timeout,
            mark=view.newest_event() if write.since_now else 0,
        )  # fmt: skip
        view.put(run, row)
        return
    stands.seq, stands.kind, stands.status, stands.attempts = seq, write.kind, write.status, write.attempts
    stands.output, stands.error, stands.cost = write.output, write.error, stands.cost + write.cost
    stands.topic, stands.due_at = write.topic, _due_at(now, write)
    stands.fence, stands.number = item.fence, item.number
    stands.started_at, stands.finished_at = started_at, finished_at
    stands.ask, stands.digest, stands.on_timeout = write.ask, write.digest, write.on_timeout
    stands.child, stands.waits = stands.child if child is None else child, stands.waits + waits


def _update(run: RunRow, step: StepRow, write: StepWrite, item: Item, now: Instant) -> None:
    """A plan's row is there since the start, and keeps its number. A try that failed only adds its cost."""
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


def _tell(view: View[R], run: R, write: StepWrite, recorded: Recorded) -> None:
    match write.status:
        case StepStatus.SUCCEEDED:
            recorded.done = view.note(run, "step_succeeded", step=write.key)
        case StepStatus.FAILED:
            view.note(run, "step_failed", step=write.key, error=raw(write.error))
        case StepStatus.WAITING:
            recorded.opened = view.note(run, opening(write.kind), step=write.key, kind=write.kind)
        case StepStatus.CANCELLED:
            view.note(run, "cancelled", step=write.key)
        case _:
            recorded.ready.append(write)
            return
    recorded.silent = False
    recorded.progress = recorded.progress or write.status in OUTCOMES
