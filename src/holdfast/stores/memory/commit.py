"""commit: the one way in for everything that a holder writes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.machine.commit import answer, refuse_foreign
from holdfast.machine.rows import holds
from holdfast.records import Instant, Item, Verdict

from .rows import State
from .view import MemoryView


def commit(state: State, batch: Sequence[Item], now: Instant) -> list[Verdict]:
    for item in batch:  # rows are changed in place: what is refused with an error is found before the first
        run = state.runs.get(item.run)
        if run is not None and holds(run, item.fence, now):
            refuse_foreign(item, run.tenant)
    view = MemoryView(state, now)
    verdicts = [answer(view, view.run(item.run), item) for item in batch]
    view.save()
    return verdicts
