"""The scope of a running step: its effects (events, messages, log rows, cost) share the commit of the
step.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast.arguments import COST_MAX, PROGRESS_MAX, check_cost, check_number
from holdfast.codec import untyped
from holdfast.engine.failures import text
from holdfast.engine.outbox.messages import check_sent
from holdfast.errors import UsageError
from holdfast.records import (
    COST_UNIT,
    Json,
    NewEvent,
    Outbound,
    TrailWrite,
)
from holdfast.records.sizes import payload_bytes

if TYPE_CHECKING:
    from holdfast.engine.commit.journal import Journal
    from holdfast.engine.tracing.step_spans import StepSpan
    from holdfast.world import Dice


class Scope:
    """The effects of user code while one step runs (events, messages, log rows, cost): they share its
    commit.
    """

    __slots__ = ("bytes", "cost", "dice", "events", "key", "over", "sends", "span", "tries")

    def __init__(self, key: str, tries: int = 1) -> None:
        self.key = key
        self.span: StepSpan | None = None  # of this try, when the program records traces
        self.tries = tries  # of the step, with this one
        # nobody waits for the step any more: a sync function in a thread cannot be cancelled
        self.over = False
        self.dice: Dice | None = None
        self.cost = 0
        self.events: list[NewEvent | Outbound] = []
        self.bytes = self.sends = 0

    def say(self, message: NewEvent | Outbound) -> None:
        """Add an event or a message; TooLarge when the commit would become too large."""
        size = payload_bytes(message)
        check_sent(len(self.events) + 1, self.bytes + size, f"step {self.key!r}")
        self.bytes += size
        self.sends += type(message) is Outbound
        self.events.append(message)

    def note(self, journal: Journal, row: TrailWrite) -> None:
        """Add a row of the trail."""
        journal.note(row)


def add_cost(scope: Scope, amount: Any) -> None:
    """Add to the cost of a step."""
    total = scope.cost + check_cost(amount)
    if total > COST_MAX * COST_UNIT:
        raise UsageError(f"step {scope.key!r} has cost more than {COST_MAX:,}, the limit of one step")
    scope.cost = total


def progress_of(done: Any, total: Any, note: Any) -> Json:
    """Return the progress of a run as it is recorded."""
    for what, number in (("done", done), ("total", total)):
        if what == "done" or number is not None:
            check_number(f"progress: {what}", number, -PROGRESS_MAX, PROGRESS_MAX)
    said = {"done": done, "total": total, "note": None if note is None else text(note, 200)}
    return untyped.encode(said, "progress")


SCOPE: ContextVar[Scope | None] = ContextVar("holdfast_step", default=None)


def within() -> Scope | None:
    """Return the step that runs in this context, if any; raise CancelledError when it was given up."""
    scope = SCOPE.get()
    if scope is not None and scope.over:
        raise asyncio.CancelledError(f"step {scope.key!r} was given up: return")
    return scope


def misplaced(name: str, scope: Scope) -> str:
    """Return the error text for a step inside a step."""
    return f"{name!r} is asked for inside step {scope.key!r}: steps and waits belong in the body"
