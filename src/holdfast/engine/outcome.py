"""Outcomes of one execution, as data. They are committed later, in one place."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.records import Instant, Json, StepWrite


class Completed(msgspec.Struct, frozen=True):
    """The function returned."""

    result: Json


class ContinuedAs(msgspec.Struct, frozen=True):
    """The function asked to continue as a new run."""

    params: Any


class Raised(msgspec.Struct, frozen=True):
    """An exception left the function."""

    error: BaseException


class StepRetry(msgspec.Struct, frozen=True):
    """A step that is retried at `due_at`. `write` records the failed try, if it is still to be recorded."""

    due_at: Instant
    write: StepWrite | None
    said: str


class Waits(msgspec.Struct, frozen=True):
    """The run has only open waits, and steps that wait for their retry."""

    opened: tuple[StepWrite, ...]
    backoffs: tuple[StepRetry, ...]


class StopReason(StrEnum):
    """The reason why an execution is stopped: an answer of the store, or a worker that cannot go on."""

    CANCELLED = "cancelled"
    LOST = "lost"
    PAUSED = "paused"
    SEALED = "sealed"
    RELEASED = "released"  # its worker stops
    FULL = "full"  # its worker has too little memory for the run's record
    SHORT = "short"  # its next step may cost more than is left of its budget


class Stopped(msgspec.Struct, frozen=True):
    """The execution was stopped from outside. `reason`: text for a run that is given back; for a run that
    is short of its budget, the step that it cannot begin, with `cost_max`.
    """

    why: StopReason
    reason: str = ""
    cost_max: int = 0


Outcome = Completed | ContinuedAs | Raised | Waits | Stopped
