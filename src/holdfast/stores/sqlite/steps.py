"""The step rows of a commit: what was recorded stands, what is open may take its outcome."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.machine.durations import micros
from holdfast.records import Instant, Item, Json, StepWrite

from .database import Database, Row, text
from .sql import statements
from .start import Starts
from .trail import TRAIL, raw

_SQL = statements("commit")
_MARK = statements("start")["mark"]
_FORGET_RECEIPT = statements("rewind")["forget_receipt"]

OUTCOMES = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})
_SETTLED = frozenset({"succeeded", "failed", "cancelled"})


class Recorded:
    """What the steps of one item came to."""

    def __init__(self, seq: int) -> None:
        self.seq = seq  # the run's highest
        self.kept: list[tuple[str, Json | None]] = []
        self.cost = 0
        self.progress = False
        self.silent = True  # nothing stands under this item yet that also wrote a trail row
        self.ready: list[str] = []  # the steps that back off
        self.opened: tuple[int, StepWrite] | None = None  # the last wait opened, and its trail row
        self.done = 0  # the trail row of the last step that has succeeded, of a plan


def standing(db: Database, run: str, item: Item) -> dict[str, Row]:
    """Those of the item's keys that have a row: status, output, cost, fence, number."""
    found = {write.key: db.one(_SQL["step"], (run, write.key)) for write in item.steps}
    return {key: row for key, row in found.items() if row is not None}


def record_steps(
    db: Database, now: Instant, item: Item, stands: dict[str, Row], seq: int, *, in_plan: bool = False
) -> Recorded:
    recorded, run = Recorded(seq), str(item.run)
    starts: Starts | None = None
    for write in item.steps:
        there = stands.get(write.key)
        if write.status is StepStatus.CANCELLED:
            if there is None:
                continue
            db.run(_FORGET_RECEIPT, (run, write.key))
        elif there is not None and _stays(there[0], write.status):
            recorded.kept.append((write.key, there[1]))
            continue
        elif there is not None and there[0] == StepStatus.WAITING and write.status not in OUTCOMES:
            continue
        if write.child is not None:
            starts = starts or Starts(db, now)
            _start_child(db, now, run, write, starts)
        recorded.cost += write.cost
        if in_plan and write.status is StepStatus.READY:
            db.run(_SQL["spend"], (write.cost, run, write.key))
        elif in_plan:
            db.run(_SQL["update_step"], (*_planned(now, item, write), run, write.key))
        else:
            recorded.seq += 1
            db.run(_SQL["put_step"], (run, recorded.seq, *_row(db, now, item, write)))
        _tell(db, now, run, write, recorded, in_plan=in_plan)
        # The same key once more in this item meets the row just written.
        stands[write.key] = (write.status, write.output, 0, item.fence, item.number)
    return recorded


def is_settled(stands: Row | None) -> bool:
    """Whether a row that stands has its outcome."""
    return stands is not None and stands[0] in _SETTLED


def _stays(stands: str, written: StepStatus) -> bool:
    """What is settled keeps its value; only a wait that was given up may be opened anew."""
    reopened = stands == StepStatus.CANCELLED and written is StepStatus.WAITING
    return stands in _SETTLED and not reopened


def _start_child(db: Database, now: Instant, run: str, write: StepWrite, starts: Starts) -> None:
    assert write.child is not None
    child = msgspec.structs.replace(write.child, parent=UUID(run), parent_step=write.key)
    db.run(TRAIL, (run, "child_started", text({"step": write.key, "child": child.id}), now))
    starts.start(child, starts.fence())


def _row(db: Database, now: Instant, item: Item, write: StepWrite) -> tuple[object, ...]:
    mark = db.one(_MARK) if write.since_now else None
    return (
        write.key, write.kind.value, write.status.value, write.attempts, write.output, write.error,
        write.cost, write.topic, _due_at(now, write), mark[0] if mark is not None else 0, item.fence,
        item.number, now if write.kind is StepKind.APPROVAL else write.started_at,
        now if write.status in SETTLED else None, write.ask, write.digest, write.on_timeout,
        None if write.child is None else str(write.child.id),
        write.kind is StepKind.CHILD and write.status is StepStatus.WAITING,
    )  # fmt: skip


def _planned(now: Instant, item: Item, write: StepWrite) -> tuple[object, ...]:
    waits = write.status is StepStatus.WAITING
    return (
        write.status.value, write.attempts, write.output, write.error, write.cost, item.fence, item.number,
        write.started_at, now if write.status in SETTLED else None, waits, _due_at(now, write), write.topic,
    )  # fmt: skip


def _due_at(now: Instant, write: StepWrite) -> Instant | None:
    if write.due_at is None and write.delay_seconds is not None:
        return now + micros(write.delay_seconds)
    return write.due_at


def _tell(
    db: Database, now: Instant, run: str, write: StepWrite, recorded: Recorded, *, in_plan: bool
) -> None:
    match write.status:
        case StepStatus.SUCCEEDED:
            db.run(TRAIL, (run, "step_succeeded", text({"step": write.key}), now))
            if in_plan:
                recorded.done = db.connection.last_insert_rowid()
        case StepStatus.FAILED:
            db.run(TRAIL, (run, "step_failed", text({"step": write.key, "error": raw(write.error)}), now))
        case StepStatus.WAITING:
            db.run(TRAIL, (run, opening(write.kind), text({"step": write.key, "kind": write.kind}), now))
            recorded.opened = (db.connection.last_insert_rowid(), write)
        case StepStatus.CANCELLED:
            db.run(TRAIL, (run, "cancelled", text({"step": write.key}), now))
        case _:
            recorded.ready.append(write.key)
            return
    recorded.silent = False
    recorded.progress = recorded.progress or write.status in OUTCOMES


def opening(kind: StepKind) -> str:
    """What the trail calls it that a wait is opened."""
    return "approval_opened" if kind is StepKind.APPROVAL else "waiting"
