"""How one execution ended: data first, committed later in one place."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.records import Instant, Json, StepWrite


class Completed(msgspec.Struct, frozen=True):
    """The function returned."""

    result: Json


class ContinuedAs(msgspec.Struct, frozen=True):
    """The function asked for its next run."""

    params: Any


class Raised(msgspec.Struct, frozen=True):
    """An exception left the function."""

    error: BaseException


class Backoff(msgspec.Struct, frozen=True):
    """A step that is tried again at `due_at`; `write` records the try that failed, if that is to be done."""

    due_at: Instant
    write: StepWrite | None
    said: str


class Waits(msgspec.Struct, frozen=True):
    """Nothing is left but waits, and steps that back off."""

    opened: tuple[StepWrite, ...]
    backoffs: tuple[Backoff, ...]


class Why(StrEnum):
    """Why an execution is stopped: as the store's answer says, or since its worker cannot go on with it."""

    CANCELLED = "cancelled"
    LOST = "lost"
    PAUSED = "paused"
    SEALED = "sealed"
    RELEASED = "released"  # its worker stops
    FULL = "full"  # its worker has no room for what it has recorded


class Stopped(msgspec.Struct, frozen=True):
    """Someone else decided. `reason`: in words, where the run goes back with it."""

    why: Why
    reason: str = ""


Outcome = Completed | ContinuedAs | Raised | Waits | Stopped
