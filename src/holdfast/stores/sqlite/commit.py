"""commit: the one way in for everything that a holder writes.

What is plain goes many at once, in `plain`; everything else goes through the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.machine.commit import answer
from holdfast.records import Instant, Item, Verdict

from . import plain
from .database import Database
from .view import SqliteView


def commit(db: Database, now: Instant, batch: Sequence[Item]) -> list[Verdict]:
    runs = [str(item.run) for item in batch]
    answers = plain.apply(db, now, batch, runs)
    left = [(run, item) for run, item in zip(runs, batch, strict=True) if run not in answers]
    if left:
        view = SqliteView(db, now)
        view.prefetch({run: item.run for run, item in left})
        view.prefetch_steps([(run, step.key) for run, item in left for step in item.steps])
        answers |= {run: answer(view, view.run_of(run, item.run), item) for run, item in left}
        view.save()
    return [answers[run] for run in runs]
