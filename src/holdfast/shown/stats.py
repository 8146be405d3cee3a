"""The overview of `holdfast stats` in sentences and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.lifecycle import OPEN, Status, spoken_status
from holdfast.records import Counted, Rate

from .counts import BacklogData, CountsData, DueRunsData, ScaleData
from .text import clean, counted
from .times import span

HAPPENINGS = {
    Counted.STARTED: "started",
    Counted.SUCCEEDED: "succeeded",
    Counted.FAILED: "failed",
    Counted.CANCELLED: "cancelled",
    Counted.RETRIED: "retried",
    Counted.EXPIRED: "lost by their worker",
}


def happened(rates: Iterable[Rate]) -> dict[str, dict[str, int]]:
    """Return how often each thing happened, by type, over all minutes."""
    found: dict[str, dict[str, int]] = {}
    for one in rates:
        of_type = found.setdefault(one.type, {})
        of_type[one.what.value] = of_type.get(one.what.value, 0) + one.number
    return found


def runs_words(counts: CountsData) -> str:
    """The number of runs, and of each status that has any."""
    total = sum(counts.by_status.values())
    parts = [
        f"{counts.by_status[status]:,} {spoken_status(status)}"
        for status in Status
        if counts.by_status.get(status)
    ]
    return f"{total:,}{': ' if parts else ''}{', '.join(parts)}"


def due_words(scale: ScaleData) -> str:
    """The number of due runs, and the age of the oldest."""
    if not scale.due:
        return "none"
    return f"{scale.due:,}{'+' if scale.more else ''}, the oldest for {span(scale.oldest_due_seconds)}"


def slots_words(leased: int, workers: int, slots: int) -> str:
    """The runs that are executed, and the slots for them."""
    if not workers:
        return f"no live worker; {counted(leased, 'run')} executed" if leased else "no live worker"
    return f"{leased:,} of {slots:,} in use, {counted(workers, 'worker')}"


def outbox_words(backlog: Sequence[BacklogData]) -> str:
    """The messages that are not delivered, and the sinks that wait longest."""
    pending, dead = sum(one.pending for one in backlog), sum(one.dead for one in backlog)
    if not pending and not dead:
        return "nothing pending"
    slowest = max(backlog, key=lambda one: one.lag_seconds)
    late = f", the oldest for {span(slowest.lag_seconds)} (to {clean(slowest.sink)})" if pending else ""
    return f"{pending:,} pending{late}" + (f"; {dead:,} dead" if dead else "")


def hour_words(by_type: Mapping[str, Mapping[str, int]]) -> str:
    """The things that happened, over all types."""
    sums = {what: sum(one.get(what.value, 0) for one in by_type.values()) for what in HAPPENINGS}
    return ", ".join(f"{sums[what]:,} {word}" for what, word in HAPPENINGS.items() if sums[what]) or "nothing"


HEAD = ("TYPE", "DUE", "OLDEST", *(spoken_status(one).upper() for one in Status), "STARTED/H", "FAILED/H")


def type_rows(
    counts: CountsData, scale: ScaleData, hour: Mapping[str, Mapping[str, int]]
) -> list[tuple[str, ...]]:
    """Return one row for each type, with the cells of HEAD: the most due runs first, then the most open."""
    due: dict[str, list[DueRunsData]] = {}
    for item in scale.items:
        due.setdefault(item.type, []).append(item)
    found = []
    for type_ in {*counts.by_type, *due, *hour}:
        numbers, waiting, lately = counts.by_type.get(type_, {}), due.get(type_, []), hour.get(type_, {})
        is_open = sum(number for status, number in numbers.items() if status in OPEN)
        total = sum(one.due for one in waiting)
        more = "+" if any(one.more for one in waiting) else ""
        cells = (
            clean(type_) or "(other types)",
            f"{total:,}{more}" if total else "",
            span(max(one.oldest_due_seconds for one in waiting)) if total else "",
            *(_number(numbers.get(status)) for status in Status),
            *(_number(lately.get(what)) for what in (Counted.STARTED, Counted.FAILED)),
        )
        found.append((-total, -is_open, cells))
    return [cells for _, _, cells in sorted(found)]


def _number(number: int | None) -> str:
    return f"{number:,}" if number else ""
