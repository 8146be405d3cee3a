"""What every store decides alike about schedules. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never

from holdfast.contract import QUEUE_MAX
from holdfast.records import Json, NewRun, NewSchedule, Overlap
from holdfast.records.reading import read_object

FORGET_MAX = 100  # of the runs that a schedule knows of, those that a firing looks at to forget the ended

Place = Literal["start", "skip", "wait"]


def keeps_runs(overlap: Overlap) -> bool:
    """Whether its open runs matter: where they do not, none is kept, for they may be any number."""
    return overlap is not Overlap.ALLOW


def place(overlap: Overlap, is_open: Callable[[], bool], *, waiting: int) -> Place:
    """What becomes of a time that has come."""
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
    """Whether the run that stands under the id of this one was started for the same time of the schedule."""
    return run.tenant == tenant and _time(run.labels) == _time(labels)


def _time(labels: Json | None) -> tuple[str | None, str | None]:
    said = read_object(labels)  # a run of somebody else may stand there, with labels of any shape
    return said.get("schedule"), said.get("fire_at")


def same_rhythm(one: NewSchedule, other: NewSchedule) -> bool:
    """Whether both mean the same times."""
    return (one.cron, one.zone, one.every_us) == (other.cron, other.zone, other.every_us)
