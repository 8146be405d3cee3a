"""commit: the one door for everything that a holder writes.

What is plain goes many at once, in `plain`; everything else goes the long way, through `Writing`, in
the order that the contract gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.lifecycle import Status
from holdfast.machine.commit import refuse_foreign
from holdfast.machine.plans import strays
from holdfast.records import Answer, Instant, Item, Verdict

from . import plain, plans
from .database import Database, Row
from .rows import news_since
from .sql import statements
from .steps import standing
from .writing import Writing

_SQL = statements("commit")
HOLD = statements("hold")["hold"]

_APPLIED = Verdict(answer=Answer.APPLIED, status=Status.LEASED)
_decode_answer = msgspec.json.Decoder(Verdict).decode


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
        return Verdict(answer=Answer.LOST, status=Status.LEASED)
    refuse_foreign(item, held[12])
    return Writing(db, now, run, item, held, current=current).apply(stands)


def not_held(db: Database, run: str, item: Item) -> Verdict:
    row = db.one(_SQL["row"], (run,))
    if row is None:
        return Verdict(answer=Answer.LOST, status=Status.CANCELLED)
    status, commit_fence, commit_no, commit_answer = row
    if not db.one(_SQL["overtaken"], (run, item.fence)):
        if commit_fence == item.fence and item.number <= commit_no:
            return _repeated(db, run, item, commit_answer if item.number == commit_no else None)
        if commit_fence <= item.fence and db.one(_SQL["stands"], (run, item.fence, item.number)):
            return _repeated(db, run, item, None)
    return Verdict(
        answer=Answer.CANCELLED if status == Status.CANCELLED else Answer.LOST, status=Status(status)
    )


def _repeated(db: Database, run: str, item: Item, answer: str | None) -> Verdict:
    """The first answer once more. Of older numbers only this much is sure: the holder went on after them."""
    first = _APPLIED if answer is None else _decode_answer(answer)
    if item.known is None or first.answer is not Answer.APPLIED:
        return first
    settled, more = news_since(db, run, item.known)
    return msgspec.structs.replace(first, settled=settled, more=more, seq=_highest(db, run))


def _highest(db: Database, run: str) -> int:
    row = db.one(_SQL["highest"], (run,))
    return row[0] if row is not None else 0
