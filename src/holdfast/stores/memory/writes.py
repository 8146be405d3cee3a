"""start, commit and publish: new runs, the items of leaseholders, definitions."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.machine import starting
from holdfast.machine.commit import answer, refused
from holdfast.machine.durations import micros
from holdfast.machine.plans import refuse_changed
from holdfast.records import Definition, Instant, Item, NewRun, Started, Verdict

from .rows import State
from .view import MemoryView


def start(state: State, runs: Sequence[NewRun], now: Instant) -> list[Started | HoldfastError]:
    """Record new runs. Return one answer for each, in order."""
    for new in runs:
        _refuse_bad(new)
    view = MemoryView(state, now)
    answers = starting.start(view, runs)
    view.save()
    return answers


def _refuse_bad(new: NewRun) -> None:
    """Find bad content before the first write: all runs share one commit."""
    for seconds in (new.delay_seconds, new.timeout_seconds, new.ttl_seconds):
        micros(seconds or 0.0)


def commit(state: State, batch: Sequence[Item], now: Instant) -> list[Verdict]:
    """Write the items of leaseholders. Return one verdict for each, in order."""
    view = MemoryView(state, now)
    # Rows are changed in place, so every item that raises an error has to be found before the first write.
    for item in batch:
        refused(view, view.run(item.run), item)
    verdicts = [answer(view, view.run(item.run), item) for item in batch]
    view.save()
    return verdicts


def publish(state: State, definitions: Sequence[Definition]) -> None:
    for definition in definitions:
        refuse_changed(state.definitions.get(definition.type), definition)
    for definition in definitions:
        state.definitions[definition.type] = definition
