"""commit: the one door for everything that a holder writes.

What is plain goes many at once, in `plain`; everything else goes the long way, through `Writing`, in
the order that the contract gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import UsageError
from holdfast.lifecycle import HOLDER_MOVES, SETTLED, WAITS, Move, Status, StepKind, StepStatus
from holdfast.records import Instant, Item, StepWrite, Verdict
from holdfast.stores.plans import strays

from . import plain, plans
from .database import Database, Row
from .rows import settled_since
from .sql import statements
from .steps import standing
from .writing import Writing

_SQL = statements("commit")
HOLD = statements("hold")["hold"]

_APPLIED = Verdict(answer="applied", status=Status.LEASED)
_WRITABLE = SETTLED | {StepStatus.READY, StepStatus.WAITING}
_OF_WAITS = frozenset({StepStatus.WAITING, StepStatus.CANCELLED})
_KINDS = frozenset(StepKind)
_decode_answer = msgspec.json.Decoder(Verdict).decode


def refuse_bad(batch: Sequence[Item]) -> None:
    """Find bad content before it is queued: one batch is one commit."""
    if len(batch) > 1 and len({item.run for item in batch}) != len(batch):
        raise UsageError("a batch holds at most one item of a run: send the next one after the answer")
    for item in batch:
        if item.move not in HOLDER_MOVES:
            raise UsageError(f"{item.move!r} is no move of a holder: {', '.join(sorted(HOLDER_MOVES))}")
        if item.move is Move.CHECKPOINT and not item.steps:
            raise UsageError(f"a checkpoint of run {item.run} records no step: it needs at least one")
        for write in item.steps:
            _refuse_bad_step(item.move, write)


def _refuse_bad_step(move: Move, write: StepWrite) -> None:
    if write.status is StepStatus.READY and move is not Move.RETRY:
        raise UsageError(f"step {write.key!r} is to be tried again: only a retry may say so, no {move}")
    if write.kind not in _KINDS:
        raise UsageError(f"step {write.key!r} is of no known kind: {write.kind!r}")
    if write.status not in _WRITABLE:
        raise UsageError(f"step {write.key!r} cannot be written as {write.status!r}")
    if write.status in _OF_WAITS and write.kind not in WAITS and not _waits_in_a_plan(move, write):
        raise UsageError(f"step {write.key!r} of kind {write.kind!r} cannot wait")


def _waits_in_a_plan(move: Move, write: StepWrite) -> bool:
    return (move, write.kind, write.status) == (Move.PARK, StepKind.TASK, StepStatus.WAITING)


def brings_news(batch: Sequence[Item]) -> bool:
    """Whether anyone else may care: plain checkpoints are nobody's business."""
    return any(
        item.move is not Move.CHECKPOINT or item.events or item.starts or item.outbox for item in batch
    )


def commit(db: Database, now: Instant, batch: Sequence[Item]) -> list[Verdict]:
    runs = [str(item.run) for item in batch]
    answers = plain.apply(db, now, batch, runs)
    return [answers.get(run) or _answer(db, now, run, item) for run, item in zip(runs, batch, strict=True)]


def _answer(db: Database, now: Instant, run: str, item: Item) -> Verdict:
    held = db.one(HOLD, (run, item.fence, now))
    if held is None:
        return not_held(db, run, item)
    return _write(db, now, run, item, held)


def refusal(db: Database, now: Instant, run: str, item: Item) -> Verdict | None:
    """The answer to an item that is not to be applied, or None. For items that the run row keeps alone."""
    held = db.one(HOLD, (run, item.fence, now))
    if held is None:
        return not_held(db, run, item)
    commit_fence, commit_no, commit_answer = held[5:8]
    if commit_fence == item.fence and item.number <= commit_no:
        return _repeated(db, run, item, commit_answer if item.number == commit_no else None)
    return None


def _write(db: Database, now: Instant, run: str, item: Item, held: Row) -> Verdict:
    commit_fence, commit_no, commit_answer = held[5:8]
    if commit_fence == item.fence and item.number <= commit_no:
        return _repeated(db, run, item, commit_answer if item.number == commit_no else None)
    stands = standing(db, run, item)
    if any(row[3] == item.fence and row[4] >= item.number for row in stands.values()):
        return _repeated(db, run, item, None)
    current = plans.at_work(db, run) if held[9] == "plan" and item.steps else None
    if strays(item, None if current is None else current.key, is_plan=held[9] == "plan"):
        return Verdict(answer="lost", status=Status.LEASED)
    return Writing(db, now, run, item, held, current=current).apply(stands)


def not_held(db: Database, run: str, item: Item) -> Verdict:
    row = db.one(_SQL["row"], (run,))
    if row is None:
        return Verdict(answer="lost", status=Status.CANCELLED)
    status, commit_fence, commit_no, commit_answer = row
    if not db.one(_SQL["overtaken"], (run, item.fence)):
        if commit_fence == item.fence and item.number <= commit_no:
            return _repeated(db, run, item, commit_answer if item.number == commit_no else None)
        if commit_fence <= item.fence and db.one(_SQL["stands"], (run, item.fence, item.number)):
            return _repeated(db, run, item, None)
    return Verdict(answer="cancelled" if status == Status.CANCELLED else "lost", status=Status(status))


def _repeated(db: Database, run: str, item: Item, answer: str | None) -> Verdict:
    """The first answer once more. Of older numbers only this much is sure: the holder went on after them."""
    first = _APPLIED if answer is None else _decode_answer(answer)
    if item.known is None or first.answer != "applied":
        return first
    return msgspec.structs.replace(first, settled=settled_since(db, run, item.known), seq=_highest(db, run))


def _highest(db: Database, run: str) -> int:
    row = db.one(_SQL["highest"], (run,))
    return row[0] if row is not None else 0
