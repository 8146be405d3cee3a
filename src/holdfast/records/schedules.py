"""Schedules: what they start and when, how they are shown, and how a keeper fires them."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from .units import DEFAULT_TENANT, PRIORITY, Instant, Json
from .unreadable import read_object, value
from .written import NewRun


class Overlap(StrEnum):
    """Rule for a time that comes while a run of the schedule is still open."""

    SKIP = "skip"  # the time is skipped, and counted
    ALLOW = "allow"  # another run is started beside it
    QUEUE = "queue"  # the time is queued until the run has ended


class CatchUp(StrEnum):
    """Rule for times that passed while no keeper was there."""

    NONE = "none"
    ONE = "one"  # the latest of them
    ALL = "all"


class FiredBy(StrEnum):
    """The cause of a firing."""

    RHYTHM = "rhythm"  # its time has come
    QUEUE = "queue"  # the first queued time can begin
    HAND = "hand"  # a person fires it


class NewSchedule(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A schedule, ready to be recorded: validated, encoded, with its next time."""

    id: UUID  # differs from the id of a later schedule with the same name
    name: str
    tenant: str = DEFAULT_TENANT
    type: str  # without its version: each time starts the newest version that is published then
    params: Json = "null"
    cron: str | None = None
    zone: str = "UTC"
    every_us: int | None = None
    anchor_at: Instant = 0  # the start of the intervals of `every_us`
    next_at: Instant | None = None
    jitter_us: int = 0
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    # For each of its runs, as in NewRun.
    priority: int = PRIORITY
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    ttl_seconds: float | None = None
    budget: int | None = None
    limit_key: str | None = None
    labels: Json | None = None


class Schedule(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A schedule in its present state."""

    id: UUID
    name: str
    tenant: str
    type: str
    params_json: Json
    cron: str | None
    zone: str
    every_us: int | None
    anchor_at: datetime
    jitter_us: int
    overlap: Overlap
    catch_up: CatchUp
    priority: int
    max_attempts: int | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    budget_units: int | None
    limit_key: str | None
    labels_json: Json | None
    paused: bool
    paused_by: str | None
    next_at: datetime | None  # None: there is no further time
    waiting: tuple[datetime, ...]  # queued times, oldest first
    fired: int  # runs that it has started
    skipped: int  # times that were skipped because a run was open
    last_at: datetime | None  # the time of the last run that was started
    last_run: UUID | None
    last_skipped_at: datetime | None
    last_missed_at: datetime | None  # a time without a keeper, which was not caught up
    rev: int  # grows with every change
    created_at: datetime
    updated_at: datetime

    @property
    def params(self) -> Any:
        """The params of each of its runs; BadValue if they cannot be read."""
        return value(self.params_json, f"params of schedule {self.name!r}")

    @property
    def labels(self) -> dict[str, str]:
        """Labels of each of its runs, beside `schedule` and `fire_at`."""
        return read_object(self.labels_json)

    @property
    def every(self) -> timedelta | None:
        """The interval; None for a cron schedule."""
        return None if self.every_us is None else timedelta(microseconds=self.every_us)

    @property
    def jitter(self) -> timedelta:
        """The longest delay of a run after its time."""
        return timedelta(microseconds=self.jitter_us)


class Fire(msgspec.Struct, gc=False, frozen=True):
    """One time of a schedule, and the run that it starts."""

    at: Instant
    run: NewRun


class Firing(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Times of a schedule that are to start their runs, and the state of the schedule when they were
    computed.
    """

    schedule: UUID
    name: str
    tenant: str
    rev: int
    by: FiredBy = FiredBy.RHYTHM
    fires: tuple[Fire, ...] = ()  # oldest first; none: all were missed
    next_at: Instant | None = None  # rhythm: the time after them
    missed_at: Instant | None = None  # rhythm: the latest time that is not caught up


class Fired(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The outcome of a firing: applied; lost, when the schedule has changed; or taken."""

    answer: str
    taken: tuple[UUID, ...] = ()  # ids of other runs that exist already: nothing was done
    started: tuple[UUID, ...] = ()
    skipped: int = 0
    queued: int = 0
