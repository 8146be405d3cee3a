"""start, publish: intents become runs, each once."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.machine import starting
from holdfast.machine.durations import micros
from holdfast.machine.plans import refuse_changed
from holdfast.records import Definition, Instant, NewRun, Started

from .rows import State
from .view import MemoryView


def start(state: State, runs: Sequence[NewRun], now: Instant) -> list[Started | HoldfastError]:
    for new in runs:
        _refuse_bad(new)
    view = MemoryView(state, now)
    answers = starting.start(view, runs)
    view.save()
    return answers


def _refuse_bad(new: NewRun) -> None:
    """Find bad content before the first write: all of them are one commit."""
    for seconds in (new.delay_seconds, new.timeout_seconds, new.ttl_seconds):
        micros(seconds or 0.0)


def publish(state: State, definitions: Sequence[Definition]) -> None:
    for definition in definitions:
        refuse_changed(state.definitions.get(definition.type), definition)
    for definition in definitions:
        state.definitions[definition.type] = definition
