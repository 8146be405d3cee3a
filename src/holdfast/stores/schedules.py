"""What every store decides alike about schedules. Pure."""

from __future__ import annotations

from typing import Literal, assert_never

from holdfast.records import NewSchedule, Overlap
from holdfast.rooms.schedules import QUEUE_MAX

Place = Literal["start", "skip", "wait"]


def place(overlap: Overlap, *, is_open: bool, waiting: int) -> Place:
    """What becomes of a time that has come."""
    match overlap:
        case Overlap.ALLOW:
            return "start"
        case Overlap.SKIP:
            return "skip" if is_open else "start"
        case Overlap.QUEUE if not is_open and not waiting:
            return "start"
        case Overlap.QUEUE:
            return "wait" if waiting < QUEUE_MAX else "skip"
        case _:
            assert_never(overlap)


def same_rhythm(one: NewSchedule, other: NewSchedule) -> bool:
    """Whether both mean the same times."""
    return (one.cron, one.zone, one.every_us) == (other.cron, other.zone, other.every_us)
