"""Items of holders: one record for each move, and the item around it.

An item has the fields of every write of a holder. A field that belongs to one move is part of that move.
`verb` is the move's name in the lifecycle.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

import msgspec

from holdfast.lifecycle import Move

from .units import DEFAULT_TENANT, Instant, Json
from .written import NewEvent, NewRun, Outbound, PlanStep, StepWrite, TrailWrite


class Checkpoint(msgspec.Struct, gc=False, frozen=True):
    """Record steps, at least one, and stay leased."""

    verb: ClassVar[Move] = Move.CHECKPOINT


class Advance(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Record the current task of a plan; the next row becomes current. The item has exactly that step."""

    verb: ClassVar[Move] = Move.ADVANCE

    result: Json | None = None  # the run's result, if that was the last step
    in_place: bool = False  # stay leased, if the next row is a task


class BeginPlan(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Give rows to a run that was started before its plan was published. The item has no step."""

    verb: ClassVar[Move] = Move.ADVANCE

    plan: tuple[PlanStep, ...]


class Park(msgspec.Struct, gc=False, frozen=True):
    """Wait, unless an awaited event is there already."""

    verb: ClassVar[Move] = Move.PARK


class Complete(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Succeed."""

    verb: ClassVar[Move] = Move.COMPLETE

    result: Json
    starts: tuple[NewRun, ...] = ()  # runs that this commit starts (continue_as)


class Retry(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Retry after a delay. Without an error: the error was recorded before."""

    verb: ClassVar[Move] = Move.RETRY

    error: Json | None
    last_error: str | None  # the error on one line, for people
    delay_seconds: float  # from now, by the store's clock
    in_place: bool = False  # stay leased
    refund: bool = False  # the backoff of a code step, which uses up no attempt of the run


class Fail(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Fail for good."""

    verb: ClassVar[Move] = Move.FAIL

    error: Json
    last_error: str  # as in Retry
    kind: str  # the error's kind, for the trail
    attempt: int | None = None  # of the step that made it fail: how often it was tried,
    max_attempts: int | None = None  # of how many tries


class Release(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Give the run back. `before`: because the rest of its budget may not pay for that step."""

    verb: ClassVar[Move] = Move.RELEASE

    before: str | None = None  # the key of the step
    cost_max: int = 0  # what it may cost, in units, with all that is reserved beside it; 0: not known


HolderMove = Checkpoint | Advance | BeginPlan | Park | Complete | Retry | Fail | Release

CHECKPOINT, PARK, RELEASE = Checkpoint(), Park(), Release()  # moves without fields of their own


class Item(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """One write of a holder: a move with everything that belongs to its commit.

    (fence, number) identifies it: numbers grow by one within a fence, from 1. The same pair again gets the
    first answer and changes nothing.
    """

    run: UUID
    tenant: str = DEFAULT_TENANT  # tenant of the run, for encryption; no guard checks it
    fence: int
    number: int
    move: HolderMove
    steps: tuple[StepWrite, ...] = ()
    trail: tuple[TrailWrite, ...] = ()
    events: tuple[NewEvent, ...] = ()  # into the inbox
    outbox: tuple[Outbound, ...] = ()
    started_at: Instant | None = None  # first item of an execution: when it began
    progress: Json | None = None
    known: int | None = None  # highest seq that the holder has seen, when it has open waits; else None
    lease_seconds: float = 30.0
    shares: bool = False  # the run shares a budget: the answer says what is left of it
    trace: str | None = None  # replaces the run's trace when the item ends the lease and the run stays open


def starts_of(item: Item) -> tuple[NewRun, ...]:
    """Return the runs that the item's move starts."""
    return item.move.starts if type(item.move) is Complete else ()
