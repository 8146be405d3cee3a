"""The moves that a page offers for a run: those that its status allows, by the table of moves."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.lifecycle import FINAL, OPEN, Move, Status, allows
from holdfast.shown.shapes import RunValuesData

# Operations of the API, and their moves.
MOVES = {
    "pause": Move.PAUSE,
    "resume": Move.RESUME,
    "cancel": Move.CANCEL,
    "retry": Move.RETRY_RUN,
    "rewind": Move.REWIND,
    "delete": Move.DELETE,
}


def offered(run: RunValuesData, can: Callable[[str], bool]) -> frozenset[str]:
    """Return the operations that a visitor is offered. can: whether their scopes allow an operation."""
    found = {name for name, move in MOVES.items() if allows(move, run.status)}
    asked = run.pause_asked_by is not None
    if run.status is Status.PAUSED or asked:
        found.discard("pause")
    if run.status is not Status.PAUSED and not asked:
        found.discard("resume")
    if run.status in FINAL:
        found.discard("cancel")  # it is allowed for a cancelled run, and changes nothing
    if run.present != run.id:  # the chain goes on in another run
        found -= {"retry", "rewind", "pause", "resume", "cancel"}
    if run.status in OPEN and run.waiting_on:
        found |= {"emit"} if any(one.topic for one in run.waiting_on) else set()
        found |= {"approve", "reject"} if any(one.kind == "approval" for one in run.waiting_on) else set()
    return frozenset(one for one in {*found, "rerun"} if can(one))
