"""The step rows of a commit: what was recorded stands, what is open may take its outcome."""

from __future__ import annotations

import msgspec

from holdfast.lifecycle import SETTLED, StepStatus
from holdfast.records import Instant, Item, Json, StepWrite
from holdfast.stores.durations import micros

from .database import Database, Row, text
from .sql import statements
from .start import TRAIL

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


def standing(db: Database, run: str, item: Item) -> dict[str, Row]:
    """Those of the item's keys that have a row: status, output, cost, fence, number."""
    found = {write.key: db.one(_SQL["step"], (run, write.key)) for write in item.steps}
    return {key: row for key, row in found.items() if row is not None}


def record_steps(db: Database, now: Instant, item: Item, stands: dict[str, Row], seq: int) -> Recorded:
    recorded, run = Recorded(seq), str(item.run)
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
        recorded.seq += 1
        recorded.cost += write.cost
        db.run(_SQL["put_step"], (run, recorded.seq, *_row(db, now, item, write)))
        _tell(db, now, run, write, recorded)
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


def _row(db: Database, now: Instant, item: Item, write: StepWrite) -> tuple[object, ...]:
    due_at = write.due_at
    if due_at is None and write.delay_seconds is not None:
        due_at = now + micros(write.delay_seconds)
    mark = db.one(_MARK) if write.since_now else None
    return (
        write.key, write.kind.value, write.status.value, write.attempts, write.output, write.error,
        write.cost, write.topic, due_at, mark[0] if mark is not None else 0, item.fence, item.number,
        write.started_at, now if write.status in SETTLED else None,
    )  # fmt: skip


def _tell(db: Database, now: Instant, run: str, write: StepWrite, recorded: Recorded) -> None:
    match write.status:
        case StepStatus.SUCCEEDED:
            db.run(TRAIL, (run, "step_succeeded", text({"step": write.key}), now))
        case StepStatus.FAILED:
            db.run(TRAIL, (run, "step_failed", text({"step": write.key, "error": raw(write.error)}), now))
        case StepStatus.WAITING:
            db.run(TRAIL, (run, "waiting", text({"step": write.key, "kind": write.kind}), now))
            recorded.opened = (db.connection.last_insert_rowid(), write)
        case StepStatus.CANCELLED:
            db.run(TRAIL, (run, "cancelled", text({"step": write.key}), now))
        case _:
            recorded.ready.append(write.key)
            return
    recorded.silent = False
    recorded.progress = recorded.progress or write.status in OUTCOMES


def raw(json: Json | None) -> msgspec.Raw | None:
    """JSON text as a part of other JSON, not looked into."""
    return None if json is None else msgspec.Raw(json.encode())
