"""The common writes of holders, many at once: checkpoints of one new step, and completes with nothing else.

A few statements serve a whole batch, whatever its size: they run without Python and without its
lock, so that the event loop works meanwhile. Whatever is not plain, or turns out not to be when
the guard looks at its row, is left to the long way.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.lifecycle import Move, Status, StepStatus
from holdfast.records import SECOND, Instant, Item, Json, Verdict

from .database import Database, Row, text
from .sql import statements

_SQL = statements("plain")

_LEASED = Verdict(answer="applied", status=Status.LEASED)
_SUCCEEDED = Verdict(answer="applied", status=Status.SUCCEEDED)
_SUCCEEDED_TEXT = text(_SUCCEEDED)

LONG = 65_536  # characters: of many long values at once the text would be longer than SQLite takes

Answers = dict[str, Verdict]  # by run: a batch holds at most one item of each


def apply(db: Database, now: Instant, batch: Sequence[Item], runs: Sequence[str]) -> Answers:
    """Write what is plain; who is not among the answers has still to be written. `runs`: ids as text."""
    checkpoints: list[Row] = []
    completes: list[Row] = []
    begun: list[Row] = []
    for item, run in zip(batch, runs, strict=True):
        if item.known is not None or item.progress is not None or item.trail or item.events or item.starts:
            continue
        if item.move is Move.COMPLETE and not item.steps and _is_short(item.result):
            completes.append((run, item.fence, item.number, item.result, item.started_at))
        elif item.move is Move.CHECKPOINT and len(item.steps) == 1:
            write = item.steps[0]
            if (
                write.status is StepStatus.SUCCEEDED and not write.cost and write.error is None
                and _is_short(write.output)
            ):  # fmt: skip
                checkpoints.append((
                    run, item.fence, item.number, item.lease_seconds * (2 * SECOND), write.key, write.kind,
                    write.attempts, write.output, write.started_at,
                ))  # fmt: skip
                if item.started_at is not None:
                    begun.append((run, item.fence, item.started_at))
    answers: Answers = {}
    if checkpoints:
        _checkpoint(db, now, checkpoints, begun, answers)
    if completes:
        _complete(db, now, completes, answers)
    return answers


def _is_short(value: Json | None) -> bool:
    return value is None or len(value) <= LONG


def _checkpoint(db: Database, now: Instant, rows: list[Row], begun: list[Row], answers: Answers) -> None:
    if begun:
        first = {run for (run,) in db.all(_SQL["begin"], {"items": text(begun), "now": now})}
        _tell(db, now, [(run, "started", f'{{"at":{at}}}') for run, _, at in begun if run in first])
    items = text(rows)
    written = {run for (run,) in db.all(_SQL["checkpoint"], {"items": items, "now": now})}
    if len(written) < len(rows):
        items = text([row for row in rows if row[0] in written])
    db.run(_SQL["step_succeeded"], {"items": items, "now": now})
    answers.update(dict.fromkeys(written, _LEASED))


def _complete(db: Database, now: Instant, rows: list[Row], answers: Answers) -> None:
    items = text(rows)
    if any(row[4] is not None for row in rows):
        db.run(_SQL["started"], {"items": items, "now": now})
    ended = [
        run for (run,) in db.all(_SQL["complete"], {"items": items, "now": now, "answer": _SUCCEEDED_TEXT})
    ]
    runs = {"runs": text(ended), "now": now}
    db.run(_SQL["cancel_steps"], runs)
    db.run(_SQL["succeeded"], runs)
    answers.update(dict.fromkeys(ended, _SUCCEEDED))


def _tell(db: Database, now: Instant, rows: list[Row]) -> None:
    if rows:
        db.run(_SQL["trail"], {"rows": text(rows), "now": now})
