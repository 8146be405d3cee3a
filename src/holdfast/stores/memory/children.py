"""Work that a run's last commit left to do: tell the parent, cancel children, look at the waits of the
run."""

from __future__ import annotations

from holdfast.machine import children
from holdfast.records import Instant

from .rows import State
from .view import MemoryView


def carry_out(state: State, now: Instant) -> int:
    """Carry out everything that runs owe, also what that adds: a cancelled child has children, too.

    Return how many parents were woken.
    """
    woken = 0
    while is_owed(state):
        woken += carry_out_some(state, now, max(1, len(state.runs)))
    return woken


def is_owed(state: State) -> bool:
    return any(row.owes for row in state.runs.values())


def carry_out_some(state: State, now: Instant, limit: int) -> int:
    """Carry out what some runs owe, by id. Return how many parents were woken."""
    view = MemoryView(state, now)
    owing = sorted((row for row in state.runs.values() if row.owes), key=lambda row: row.id)
    woken = children.carry_out(view, owing[:limit], limit)
    view.save()
    return woken
