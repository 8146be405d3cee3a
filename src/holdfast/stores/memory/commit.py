"""commit: the one way in for everything that a holder writes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.machine.commit import answer, refused
from holdfast.records import Instant, Item, Verdict

from .rows import State
from .view import MemoryView


def commit(state: State, batch: Sequence[Item], now: Instant) -> list[Verdict]:
    view = MemoryView(state, now)
    for item in batch:  # rows are changed in place: what is refused with an error is found before the first
        refused(view, view.run(item.run), item)
    verdicts = [answer(view, view.run(item.run), item) for item in batch]
    view.save()
    return verdicts
