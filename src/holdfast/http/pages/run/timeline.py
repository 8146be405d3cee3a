"""The timeline of a run: a row for the queue, one for each step, and bars for what happened in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.lifecycle import FINAL, SETTLED, Status, StepKind, StepStatus
from holdfast.records.unreadable import read_object
from holdfast.shown.shapes import RunningData, RunValuesData, StepData, TrailEntryData
from holdfast.shown.times import span

from .scale import Scale

# Entries of the trail that say when the run was in the queue, and when a try failed.
MARKS = (
    "leased", "retried", "woken", "approved", "rejected", "timed_out", "resumed", "released", "lease_expired",
    "paused", "rewound",
)  # fmt: skip
RUNNING_MAX = 50  # steps that run now and are drawn
_QUEUED = frozenset(MARKS) - {"leased", "paused"}  # a run is in the queue after them
_IDLE = frozenset({StepStatus.READY, StepStatus.PENDING, StepStatus.CANCELLED})
_BUSY = frozenset({"done", "failed", "running"})
_KINDS = {
    StepKind.SLEEP: "sleep", StepKind.EVENT: "wait", StepKind.APPROVAL: "gate", StepKind.CHILD: "child",
}  # fmt: skip
LEGEND = {
    "queue": "in the queue", "done": "executed", "failed": "try that failed", "backoff": "until the next try",
    "running": "runs now", "sleep": "sleep", "wait": "waits for an event", "gate": "waits for a decision",
    "child": "child run", "paused": "paused", "crash": "lease expired",
}  # fmt: skip


class Bar(NamedTuple):
    """A piece of a row. kind: a key of LEGEND; words: its tooltip."""

    kind: str
    begin: float
    end: float
    words: str


class Row(NamedTuple):
    """A row. step: its name; empty for the row of the run itself."""

    step: str
    status: str
    took: str
    bars: tuple[Bar, ...]


class Timeline(NamedTuple):
    """Rows on one scale. kinds: of the bars that it has, for the legend."""

    rows: tuple[Row, ...]
    scale: Scale
    kinds: tuple[str, ...]


class _Mark(NamedTuple):
    type: str
    at: float
    data: Mapping[str, Any]


def timeline(
    run: RunValuesData,
    steps: Sequence[StepData],
    entries: Sequence[TrailEntryData],
    now: datetime,
    *,
    is_first: bool,
) -> Timeline:
    """Return the timeline of these steps, oldest first. is_first: they include the first step of the run."""
    end = (run.finished_at or now).timestamp()
    marks = [_Mark(one.type, one.at.timestamp(), read_object(bytes(one.data))) for one in entries]
    ends = sorted(one.finished_at.timestamp() for one in steps if one.finished_at is not None)
    rows = [_row(one, marks, ends, end) for one in steps]
    known = {one.step for one in steps if one.status not in SETTLED}
    rows += [_running_row(one, end) for one in run.running[:RUNNING_MAX] if one.step not in known]
    began = [bar.begin for row in rows for bar in row.bars]
    begin = run.created_at.timestamp() if is_first or not began else min(began)
    queue = [bar for bar in _queue(run, marks, end) if bar.end >= begin]
    if queue:
        rows.insert(0, Row("", "", "", tuple(queue)))
    bars = [bar for row in rows for bar in row.bars]
    last = end if run.status not in FINAL or is_first else max((bar.end for bar in bars), default=end)
    scale = Scale(
        begin,
        max([last, *(bar.end for bar in bars)]),
        ((one.begin, one.end) for one in bars if one.kind in _BUSY),
    )
    there = {bar.kind for bar in bars}
    return Timeline(tuple(rows), scale, tuple(kind for kind in LEGEND if kind in there))


def _row(step: StepData, marks: Sequence[_Mark], ends: Sequence[float], end: float) -> Row:
    began = None if step.started_at is None else step.started_at.timestamp()
    finished = None if step.finished_at is None else step.finished_at.timestamp()
    bars: list[Bar] = []
    kind = _KINDS.get(step.kind)
    if kind is None:
        bars = [*_tries(step.step, marks, ends, began, end if finished is None else finished)]
        kind = {StepStatus.FAILED: "failed", StepStatus.RUNNING: "running", StepStatus.WAITING: "wait"}.get(
            step.status, "done"
        )
        if bars and began is not None:
            began = max(began, bars[-1].end)  # of the last try
        if finished is None and step.status in _IDLE:
            began = None  # it is not executed now
    if began is not None:
        to = max(began, end if finished is None else finished)
        bars.append(Bar(kind, began, to, f"{step.kind} {step.status}, {span(to - began)}"))
    elif finished is not None:
        bars.append(Bar(kind, finished, finished, f"{step.kind} {step.status}"))
    return Row(step.step, step.status, span(bars[-1].end - bars[0].begin) if bars else "", tuple(bars))


def _tries(
    step: str, marks: Sequence[_Mark], ends: Sequence[float], began: float | None, end: float
) -> Iterator[Bar]:
    """Yield the tries of a task that have failed, and the pauses between them.

    A store keeps the end of a try. It began when the run was leased, when the pause after the try before was
    over, when the step before had ended, or when the step began (which is kept of its last execution),
    whichever came last.
    """
    free = 0.0
    for mark in marks:
        if mark.type == "leased":
            free = max(free, mark.at)
        if mark.type != "retried" or mark.data.get("step") != step or mark.at > end:
            continue
        before = max((at for at in ends if at <= mark.at), default=0.0)
        since = began if began is not None and began <= mark.at else 0.0
        begin = min(mark.at, max(free, before, since) or mark.at)
        free = min(end, _due(mark))
        number = mark.data.get("attempt", "?")
        yield Bar("failed", begin, mark.at, f"try {number} failed after {span(mark.at - begin)}")
        yield Bar("backoff", mark.at, free, f"{span(free - mark.at)} until the next try")


def _tries_of_run(run: RunValuesData, marks: Sequence[_Mark], end: float) -> Iterator[Bar]:
    """Yield the executions in which the body of the workflow raised an error, and the pauses after them."""
    free: float | None = None  # since when the run is executed
    for mark in marks:
        if mark.type == "leased":
            free = mark.at
        if mark.type != "retried" or "step" in mark.data or not isinstance(mark.data.get("error"), Mapping):
            continue  # a person's retry has no error
        begin = mark.at if free is None else min(free, mark.at)
        free, number = min(end, _due(mark)), mark.data.get("attempt", "?")
        yield Bar("failed", begin, mark.at, f"try {number} failed after {span(mark.at - begin)}")
        if free > mark.at:
            yield Bar("backoff", mark.at, free, f"{span(free - mark.at)} until the next try")
    if run.status is Status.FAILED and run.error is not None and run.error.step is None and free is not None:
        begin = min(free, end)
        yield Bar("failed", begin, end, f"the last try failed after {span(end - begin)}")


def _running_row(one: RunningData, end: float) -> Row:
    began = min(one.started_at.timestamp(), end)
    words = f"try {one.attempt} runs for {span(end - began)}"
    return Row(one.step, StepStatus.RUNNING, span(end - began), (Bar("running", began, end, words),))


def _queue(run: RunValuesData, marks: Sequence[_Mark], end: float) -> Iterator[Bar]:
    """Yield the times in the queue and in pauses, the leases that expired, and tries that failed outside of a
    step.
    """
    yield from _tries_of_run(run, marks, end)
    since: float | None = run.created_at.timestamp()
    paused: float | None = None
    leased = end
    for mark in marks:
        if mark.type == "leased":
            leased = mark.at
            if since is not None:
                yield _long("queue", since, max(since, leased), "in the queue")
        elif mark.type == "lease_expired":
            yield Bar("crash", mark.at, mark.at, "lease expired: its worker gave no sign of life")
        elif mark.type == "resumed" and paused is not None:
            yield _long("paused", paused, mark.at, "paused")
        since = _due(mark) if mark.type in _QUEUED else None
        paused = mark.at if mark.type == "paused" else None if mark.type == "resumed" else paused
    yield from _now(run, since, paused, leased, end)


def _now(
    run: RunValuesData, since: float | None, paused: float | None, leased: float, end: float
) -> Iterator[Bar]:
    """Yield the time in the queue, in a pause or with a worker that has not ended."""
    if run.status is Status.PAUSED and paused is not None:
        yield _long("paused", paused, end, "paused")
    elif run.status is Status.PENDING and since is not None and since < end:
        yield _long("queue", since, end, "in the queue")
    elif run.status is Status.LEASED and not run.running:
        yield _long("running", leased, end, "executed by a worker")


def _long(kind: str, begin: float, end: float, words: str) -> Bar:
    return Bar(kind, begin, end, f"{words} for {span(end - begin)}")


def _due(mark: _Mark) -> float:
    """Return when a run that is in the queue since this entry was due."""
    return mark.at + (number_of(mark.data.get("delay")) or 0.0)


def number_of(value: Any) -> float | None:
    """Return a stored number; None for anything else, and for one that is too large: a plain-SQL role may
    write what it likes.
    """
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
