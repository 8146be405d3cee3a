"""Decisions about schedules that all stores share, without any I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never

from holdfast.contract import QUEUE_MAX
from holdfast.records import Json, NewRun, NewSchedule, Overlap
from holdfast.records.unreadable import read_object

FORGET_MAX = 100  # known runs of a schedule that one firing looks at, to forget those that have ended

Place = Literal["start", "skip", "wait"]


def keeps_runs(overlap: Overlap) -> bool:
    """Return True when the schedule has to know its open runs. Else none is stored: there may be any
    number."""
    return overlap is not Overlap.ALLOW


def place(overlap: Overlap, is_open: Callable[[], bool], *, waiting: int) -> Place:
    """Return whether the run of a due time is started, skipped or queued."""
    match overlap:
        case Overlap.ALLOW:
            return "start"
        case Overlap.SKIP:
            return "skip" if is_open() else "start"
        case Overlap.QUEUE if not waiting and not is_open():
            return "start"
        case Overlap.QUEUE:
            return "wait" if waiting < QUEUE_MAX else "skip"
        case _:
            assert_never(overlap)


def same_time(run: NewRun, tenant: str, labels: Json | None) -> bool:
    """Return True when the stored run with the same id was started for the same time of the schedule."""
    return run.tenant == tenant and _time(run.labels) == _time(labels)


def _time(labels: Json | None) -> tuple[str | None, str | None]:
    found = read_object(labels)  # any run may have the id, with labels of any shape
    return found.get("schedule"), found.get("fire_at")


def same_rhythm(one: NewSchedule, other: NewSchedule) -> bool:
    """Return True when both have the same times."""
    return (one.cron, one.zone, one.every_us) == (other.cron, other.zone, other.every_us)
