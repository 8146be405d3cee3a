"""The answer of `explain`, the facts that it is made of, and small parts of its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.engine.worker.presence import SILENT_SECONDS
from holdfast.escaping import inline
from holdfast.lifecycle import Status
from holdfast.records import ChildCounts, Hold, Instant, Presence, Run, Step, moment

SHOWN = 5  # waits, workers and types that the text names; the data has all waits
ERROR_MAX = 500  # characters of an error's message
LATE_SECONDS = 10.0  # workers do their chores every second: if one is later than this, none does them
START_ONE = "start one: `holdfast worker MODULE:APP`"


class Explanation(msgspec.Struct, frozen=True):
    """`reason` is one stable word, `text` a sentence for people, `data` the facts in it."""

    reason: str
    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        """The sentence."""
        return self.text


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Facts around a run. Each is looked up only for the statuses that need it."""

    now: Instant
    workers: Sequence[Presence] = ()  # live workers, for a run that is pending or overdue
    holds: Sequence[Hold] = ()  # reasons why it may not be claimed, for a pending run
    # The step that will be retried, or the call of the child that made the run fail.
    failed: Step | None = None
    paused: Mapping[str, Any] = {}  # the data of its pause in the trail
    children: Mapping[UUID, Run] = {}  # the first few child runs that it waits for
    child: tuple[UUID, Explanation] | None = None  # the first open child run, and why that does not move


def paused_by(known: Known) -> str:
    """Return who has paused the run, as its trail says."""
    return str(known.paused.get("by") or "")


def with_children(explanation: Explanation, counted: Sequence[ChildCounts]) -> Explanation:
    """Return the explanation with the children of the run summed up, if there are several."""
    if not counted or counted[0].total < 2:
        return explanation
    one, more = counted[0], "+" if counted[0].more else ""
    failed = one.by_status.get(Status.FAILED, 0)
    text = f" Of its {one.total:,}{more} children {one.ended:,} have ended" + (
        f", {failed:,} failed" if failed else ""
    )
    data = {"by_status": one.by_status, "more": one.more}
    return Explanation(
        explanation.reason, f"{explanation.text}{text}.", {**explanation.data, "children": data}
    )


def no_worker_live(since: datetime, known: Known, but: str | None = None) -> str:
    """A part of the sentence for something overdue: no worker is live, or none has acted in time."""
    if not any(one.worker != but for one in known.workers):
        return f", but no {'other ' * bool(known.workers)}worker is live: {START_ONE}"
    if (moment(known.now) - since).total_seconds() <= LATE_SECONDS:
        return ""
    return silent([one for one in known.workers if one.worker != but], moment(known.now))


def silent(workers: Sequence[Presence], now: datetime) -> str:
    """A part of the sentence about workers that count as live, but should have sent a heartbeat since."""
    age = (now - moment(max(one.seen_at for one in workers))).total_seconds()
    if age <= SILENT_SECONDS:
        return ""
    whose, dead = ("its", "it is") if len(workers) == 1 else ("their", "they are")
    return f"; {whose} last sign of life was {age:.0f} s ago; if {dead} dead, {START_ONE}"


def quoted(name: str | None) -> str:
    return f"'{inline(name)}'"


def few(names: Sequence[str], count: int | None = None) -> str:
    """The first few names, and the number of the others."""
    left = (len(names) if count is None else count) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {left:,} more" if left > 0 else "")


def at_text(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
