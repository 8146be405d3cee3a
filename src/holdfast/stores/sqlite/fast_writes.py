"""The fast path for the common writes of leaseholders: many items with a few statements.

It takes checkpoints of one new step, completes without steps or with all steps of the run, and finished tasks
of plans. Each may bring log rows.

A few statements serve a whole batch of any size. They run inside SQLite without Python's lock, so the event
loop can work meanwhile. Items that are not simple, or whose row fails the guard, go through the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.machine.durations import micros
from holdfast.records import SECOND, Answer, Instant, Item, Json, Step, StepWrite, TrailWrite, Verdict
from holdfast.records.moves import Advance, Checkpoint, Complete

from .connection.database import Database, Row, text
from .sql import statements

_SQL = statements("fast_writes")

_LEASED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)
_SUCCEEDED = Verdict(answer=Answer.APPLIED, status=Status.SUCCEEDED)
_SUCCEEDED_TEXT = text(_SUCCEEDED)

LONG = 65_536  # characters: many longer values in one text would exceed the limit of SQLite

Answers = dict[str, Verdict]  # by run: a batch holds at most one item of a run
Ends = dict[str, tuple[Item, Json]]  # by run: the item that completes it, and the result
Logs = dict[str, tuple[TrailWrite, ...]]  # by run: the log rows that its item brings


class _Sorted:
    """The simple items of a batch, by kind."""

    def __init__(self) -> None:
        self.checkpoints: list[Row] = []
        self.begun: list[Row] = []  # checkpoints that are the first of an execution
        self.completes: list[Row] = []
        self.segments: Ends = {}  # completes that bring steps
        self.advances: list[tuple[str, Item, Advance]] = []
        self.logs: Logs = {}

    def add(self, run: str, item: Item) -> None:
        """Keep an item if its move is a simple one. The item has nothing but its move and log rows."""
        move, steps = item.move, item.steps
        if item.trail:
            if sum(len(row.data) for row in item.trail) > LONG:
                return
            self.logs[run] = item.trail
        match move:
            case Checkpoint() if len(steps) == 1 and _is_simple(steps[0]):
                self._add_checkpoint(run, item, steps[0])
            case Complete() if not move.starts and _is_short(move.result):
                if steps:
                    self.segments[run] = item, move.result
                else:
                    self.completes.append(_completing(run, item, move.result))
            case Advance() if len(steps) == 1 and _is_task(steps[0]) and _is_short(move.result):
                self.advances.append((run, item, move))
            case _:
                pass

    def _add_checkpoint(self, run: str, item: Item, write: StepWrite) -> None:
        self.checkpoints.append((
            run, item.fence, item.number, item.lease_seconds * (2 * SECOND), write.key, write.kind,
            write.attempts, write.output, write.started_at,
        ))  # fmt: skip
        if item.started_at is not None:
            self.begun.append((run, item.fence, item.started_at))


def apply(db: Database, now: Instant, batch: Sequence[Item], runs: Sequence[str]) -> Answers:
    """Write the simple items and return their answers. The caller writes the others. `runs`: ids as text."""
    found = _Sorted()
    for item, run in zip(batch, runs, strict=True):
        simple = item.known is None and item.progress is None and not item.shares
        if simple and not item.events and not item.outbox:
            found.add(run, item)
    answers: Answers = {}
    if found.checkpoints:
        _checkpoint(db, now, found, answers)
    whole = _whole(db, now, found.segments) if found.segments else {}
    completes = found.completes + [_completing(run, item, result) for run, (item, result) in whole.items()]
    if completes:
        _complete(db, now, completes, whole, found.logs, answers)
    if found.advances:
        _advance(db, now, found.advances, answers)
    return answers


def _is_task(write: StepWrite) -> bool:
    return write.kind is StepKind.TASK and _is_simple(write)


def _is_simple(write: StepWrite) -> bool:
    return (
        write.status is StepStatus.SUCCEEDED
        and not write.cost
        and write.error is None
        and write.child is None
        and _is_short(write.output)
    )


def _is_short(value: Json | None) -> bool:
    return value is None or len(value) <= LONG


def _completing(run: str, item: Item, result: Json) -> Row:
    return run, item.fence, item.number, result, item.started_at


def _whole(db: Database, now: Instant, segments: Ends) -> Ends:
    """Return the segments that hold their whole run: no step is recorded yet, and each step is simple."""
    asked = [
        (run, item.fence, item.number)
        for run, (item, _) in segments.items()
        if all(map(_is_simple, item.steps))
        and len({one.key for one in item.steps}) == len(item.steps)
        and sum(len(one.output or "") for one in item.steps) <= LONG
    ]
    return {run: segments[run] for (run,) in db.all(_SQL["whole"], {"items": text(asked), "now": now})}


def _steps(whole: Ends) -> list[Row]:
    return [
        (run, item.fence, item.number, seq, one.key, one.kind, one.attempts, one.output, one.started_at)
        for run, (item, _) in whole.items()
        for seq, one in enumerate(item.steps, 1)
    ]


def _checkpoint(db: Database, now: Instant, found: _Sorted, answers: Answers) -> None:
    rows, begun = found.checkpoints, found.begun
    if begun:
        first = {run for (run,) in db.all(_SQL["begin"], {"items": text(begun), "now": now})}
        _add_trail(db, now, [(run, "started", f'{{"at":{at}}}') for run, _, at in begun if run in first])
    items, logs = text(rows), found.logs
    written = {run for (run,) in db.all(_SQL["checkpoint"], {"items": items, "now": now})}
    if logs or len(written) < len(rows):
        logged = [row for row in rows if row[0] in written and row[0] in logs]
        rows = [row for row in rows if row[0] in written and row[0] not in logs]
        _add_trail(db, now, [one for row in logged for one in _with_logs(row, logs)])
        items = text(rows)
    if rows:
        db.run(_SQL["step_succeeded"], {"items": items, "now": now})
    answers.update(dict.fromkeys(written, _LEASED))


def _with_logs(row: Row, logs: Logs) -> list[Row]:
    """Return the trail of a checkpoint with log rows: the log rows, then its step."""
    run, key = row[0], row[4]
    return [*_logged(run, logs[run]), (run, "step_succeeded", text({"step": key}))]


def _complete(db: Database, now: Instant, rows: list[Row], whole: Ends, logs: Logs, answers: Answers) -> None:
    items = text(rows)
    if any(row[4] is not None for row in rows):
        db.run(_SQL["started"], {"items": items, "now": now})
    if whole:
        written = {"items": text(_steps(whole)), "now": now}
        _add_logs(db, now, whole, logs)
        db.run(_SQL["steps"], written)
        db.run(_SQL["step_succeeded"], written)
    ended = [
        run for (run,) in db.all(_SQL["complete"], {"items": items, "now": now, "answer": _SUCCEEDED_TEXT})
    ]
    _add_logs(db, now, [run for run in ended if run not in whole], logs)
    runs = {"runs": text(ended), "now": now}
    db.run(_SQL["cancel_steps"], runs)
    db.run(_SQL["succeeded"], runs)
    answers.update(dict.fromkeys(ended, _SUCCEEDED))


def _advance(db: Database, now: Instant, advances: list[tuple[str, Item, Advance]], answers: Answers) -> None:
    """Record finished tasks of plans. Each run goes on with its next task, or has ended."""
    rows = [_task(*one) for one in advances]
    items = text(rows)
    found = db.all(_SQL["advance"], {"items": items, "now": now})
    if not found:
        return
    if len(found) < len(rows):
        items = text([rows[at] for at, *_ in found])
    staying: list[Row] = []
    ended: list[Row] = []
    begun: list[Row] = []
    renewed: list[Row] = []
    for at, seq, key, max_attempts, begins, is_due in found:
        run, item, move = advances[at]
        begun_at = item.started_at if begins else None
        if begun_at is not None:
            begun.append((run, "started", f'{{"at":{begun_at}}}'))
        begun += _logged(run, item.trail)
        if seq is None:
            answers[run] = _SUCCEEDED
            ended.append((run, item.number, begun_at, move.result))
            continue
        answers[run] = _goes_on_with(seq, key, max_attempts)
        staying.append((run, item.number, begun_at, seq, key, max_attempts))
        if is_due:
            renewed.append((run, micros(item.lease_seconds)))
    _add_trail(db, now, begun)
    db.run(_SQL["record_task"], {"items": items, "now": now})
    db.run(_SQL["step_succeeded"], {"items": items, "now": now})
    if staying:
        db.run(_SQL["go_on"], {"items": text(staying), "now": now})
    if renewed:
        db.run(_SQL["renew"], {"items": text(renewed), "now": now})
    if ended:
        db.run(_SQL["end_plan"], {"items": text(ended), "now": now, "answer": _SUCCEEDED_TEXT})
        db.run(_SQL["succeeded"], {"runs": text([row[0] for row in ended]), "now": now})


def _task(run: str, item: Item, move: Advance) -> Row:
    (write,) = item.steps
    return (
        run, item.fence, item.number, item.lease_seconds * (2 * SECOND), write.key, move.in_place,
        write.attempts, write.output, write.started_at,
    )  # fmt: skip


def _goes_on_with(seq: int, key: str, max_attempts: int | None) -> Verdict:
    step = Step(seq=seq, key=key, kind=StepKind.TASK, status=StepStatus.PENDING, max_attempts=max_attempts)
    return Verdict(answer=Answer.APPLIED, status=Status.LEASED, settled=(step,))


def _logged(run: str, rows: Iterable[TrailWrite]) -> list[Row]:
    return [(run, row.type, row.data) for row in rows]


def _add_logs(db: Database, now: Instant, runs: Iterable[str], logs: Logs) -> None:
    if logs:
        _add_trail(db, now, [row for run in runs for row in _logged(run, logs.get(run, ()))])


def _add_trail(db: Database, now: Instant, rows: list[Row]) -> None:
    if rows:
        db.run(_SQL["trail"], {"rows": text(rows), "now": now})
