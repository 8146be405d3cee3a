"""A run in words: the news of one line, and the facts of `show`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.engine.explain.budgets import budget_words
from holdfast.engine.failures import AT_ONCE
from holdfast.lifecycle import FINAL, OPEN, SETTLED, Status, spoken_status
from holdfast.records import DEFAULT_TENANT, PRIORITY, ChildCounts, Json, Run, Step
from holdfast.records.units import amount
from holdfast.records.unreadable import MARK, UNREADABLE, Unreadable, read
from holdfast.transfer.places import moved_words

from .data import raw_text
from .text import by_whom, clean, counted, short
from .times import ago, span, stamp
from .waits import waits

VALUE_MAX = 400  # characters of params and result; --json prints all
RUNNING_SHOWN = 5  # steps that `executes` names; the table has all
CHILDREN_SHOWN, CHILDREN_MAX = 5, 1_000  # children that are named, that are counted

Fact = tuple[str, str]


def news(run: Run, now: datetime) -> str:
    """The one thing that matters about a run in its status."""
    if run.deleted_at is not None:
        return f"deleted {ago(run.deleted_at, now)}"
    if run.present != run.id:
        return f"continued as run {short(run.present)}"
    match run.status:
        case Status.WAITING:
            return "for " + waits(run, now)
        case Status.PENDING if run.run_at > now:
            return f"due {ago(run.run_at, now)}" + (f": {clean(run.last_error)}" if run.last_error else "")
        case Status.CANCELLED if moved := moved_words(run):
            return clean(moved)
        case Status.FAILED:
            return _failure(run)
        case Status.LEASED if run.progress_json is not None:
            return progress_words(run)
        case Status.PAUSED if run.pause_asked_by:
            return f"paused: {_pause(run)}"
    if run.current_step_name is not None:
        return f"at step {(run.current_step_seq or 0) + 1}: {clean(run.current_step_name)}"
    finished = run.cursor if run.status is not Status.SUCCEEDED else None
    return f"last finished step: {clean(finished)}" if finished else ""


def _failure(run: Run) -> str:
    """`charge: ValueError: no card 199 (3 of 3)`: the cause comes early, for the line may be cut."""
    said, step = run.last_error or "", run.error.step if run.error is not None else None
    for plain in ("exhausted: ", "error: "):  # the tries tell the same
        said = said.removeprefix(plain)
    if step:
        said = said.replace(f"step {step!r} failed: ", "", 1)
    at = f"{clean(step)}: " if step else ""
    return f"{at}{clean(said)}" + (
        "" if _at_once(run) else f" ({run.attempt - run.crashes} of {run.max_attempts})"
    )


def _at_once(run: Run) -> bool:
    """Whether it has failed with an error that is never retried."""
    return run.error is not None and run.error.kind in AT_ONCE


def children_words(counts: ChildCounts | None) -> str:
    """`210 of 500 children ended, 3 failed`; `1,000+` where the count stopped. Empty without children."""
    if counts is None:
        return ""
    failed = counts.by_status.get(Status.FAILED, 0)
    more = "+" if counts.more else ""
    noun = "child" if counts.total == 1 and not more else "children"
    return f"{counts.ended:,}{more} of {counts.total:,}{more} {noun} ended" + (
        f", {failed:,} failed" if failed else ""
    )


def progress_words(run: Run) -> str:
    """`3 of 10 (30%): packing`; progress of another shape is shown as unreadable."""
    if run.progress_json is None:
        return ""
    progress = read(run.progress_json, _Progress)
    if isinstance(progress, Unreadable):
        return clean(progress)
    try:
        done, total = f"{progress.done:g}", "" if progress.total is None else f" of {progress.total:g}"
        share = f" ({progress.done / progress.total:.0%})" if progress.total else ""
    except OverflowError:
        return clean(Unreadable("a number that is too large"))
    return clean(f"{done}{total}{share}" + (f": {progress.note}" if progress.note else ""))


class _Progress(msgspec.Struct):
    done: int | float
    total: int | float | None = None
    note: str | None = None


def facts(
    run: Run,
    steps: Sequence[Step],
    children: Sequence[Run],
    now: datetime,
    status: Callable[[str], str] = spoken_status,
    counts: ChildCounts | None = None,
    cancelled_by: str = "",
) -> Iterator[Fact]:
    """Names and values that describe a run; `status` gives the word for a status, perhaps in colour."""
    yield "status", _status(run, now, status, cancelled_by)
    if run.waiting_on:
        yield "waits for", waits(run, now)
    if run.running:
        yield "executes", running_words(run, now)
    yield _position(run, steps)
    if (run.attempt and run.status in OPEN) or (run.status is Status.FAILED and not _at_once(run)):
        yield "attempts", _attempts(run, steps)
    if run.last_error:
        # In a run that goes on the error is history: its step may have succeeded since.
        name = "error" if run.status is Status.FAILED else "last error"
        yield name, clean(run.last_error.removeprefix("error: "))
    if run.fingerprint is not None:
        yield "fingerprint", clean(run.fingerprint)
    if run.progress is not None:
        yield "progress", progress_words(run)
    yield from _costs(run)
    yield from _instants(run, now)
    yield from _unusual(run)
    yield from _relatives(run, children, counts, status)
    yield "params", _value(run.params_json)
    if run.status is Status.SUCCEEDED:
        yield "result", _value(run.result_json)


def _costs(run: Run) -> Iterator[Fact]:
    """The cost of the run itself; a budget that covers its children, too, has a line of its own."""
    shared = run.account is not None and run.account_budget_units is not None
    own = None if shared and run.account == run.chain else run.budget_units
    if run.cost_units or own is not None:
        yield "cost", amount(run.cost_units) + ("" if own is None else f" of {amount(own)}")
    if shared:
        whose = "with its children" if run.account == run.chain else f"of run {run.account}"
        costs = f"{amount(run.account_cost_units or 0)} of {amount(run.account_budget_units or 0)}"
        yield "shared budget", f"{costs} spent, {whose}"


def running_words(run: Run, now: datetime) -> str:
    """`charge for 8.0 s, try 2`: the steps that are executed now, oldest first."""
    named = [
        f"{clean(one.step)} for {span(max(0.0, (now - one.started_at).total_seconds()))}"
        + (f", try {one.attempt}" if one.attempt > 1 else "")
        for one in run.running[:RUNNING_SHOWN]
    ]
    left = len(run.running) - RUNNING_SHOWN
    return "; ".join(named) + (f"; and {left} more" if left > 0 else "")


def _status(run: Run, now: datetime, status: Callable[[str], str], cancelled_by: str) -> str:
    word = status(run.status)
    match run.status:
        case Status.LEASED:
            by = run.pause_asked_by
            pause = "" if by is None else f"; a pause was requested{by_whom(by)}"
            ends = "ends" if run.lease_until is None or run.lease_until >= now else "expired"
            return f"{word} on {clean(run.leased_by)}, lease {ends} {ago(run.lease_until, now)}{pause}"
        case Status.PAUSED if run.pause_asked_by:
            return f"{word}: {_pause(run)}"
        case Status.PENDING:
            return f"{word}, due {ago(run.run_at, now)}"
        case Status.SUCCEEDED | Status.FAILED | Status.CANCELLED if run.finished_at is not None:
            by = by_whom(cancelled_by) if run.status is Status.CANCELLED else ""
            return f"{word}{by} after {span((run.finished_at - run.created_at).total_seconds())}"
    return word


def _pause(run: Run) -> str:
    """The reason of a pause: a budget, or the person who asked for it."""
    return budget_words(run) or by_whom(run.pause_asked_by).strip()


def _position(run: Run, steps: Sequence[Step]) -> Fact:
    """The current step of a plan; of code the last step that is recorded."""
    if run.kind == "plan":
        number = next((step.seq + 1 for step in steps if step.key == run.cursor), None)
        return "at step", "-" if number is None else f"{number} of {len(steps)}: {clean(run.cursor)}"
    finished = sum(step.status in SETTLED for step in steps)
    if run.cursor is None and run.status in FINAL:
        return "last step", "none finished" if steps else "no steps recorded"
    if run.cursor is None:
        return "last step", "none finished yet"
    return "last step", f"{clean(run.cursor)} ({counted(finished, 'step')} finished)"


def _attempts(run: Run, steps: Sequence[Step]) -> str:
    """Attempts of a plan's current task, of a failed run's last step, or of code since its last progress."""
    attempts, most = run.attempt - run.crashes, run.max_attempts  # crashes use no attempt
    crashed = f"; its worker died {counted(run.crashes, 'time')}" if run.crashes else ""
    if run.status is Status.FAILED:
        return f"{attempts} of {most}{crashed}"
    if run.kind != "plan":  # attempts of its steps are shown on their rows
        return f"{attempts} of {most} since the last finished step{crashed}"
    step = next((one for one in steps if one.key == run.cursor and one.max_attempts is not None), None)
    return f"{attempts} of {most if step is None else step.max_attempts or most} for this step{crashed}"


def _instants(run: Run, now: datetime) -> Iterator[Fact]:
    yield "started", f"{ago(run.created_at, now)} ({stamp(run.created_at)})"
    if run.finished_at is not None:
        yield "finished", f"{ago(run.finished_at, now)} ({stamp(run.finished_at)})"
    if run.timeout_at is not None and run.finished_at is None:
        yield "times out", f"{ago(run.timeout_at, now)} ({stamp(run.timeout_at)})"


def _unusual(run: Run) -> Iterator[Fact]:
    """Options of the run that differ from their defaults."""
    if run.tenant != DEFAULT_TENANT:
        yield "tenant", clean(run.tenant)
    if run.key is not None:
        yield "key", clean(run.key)
    if run.priority != PRIORITY:
        yield "priority", str(run.priority)
    if run.limit_key is not None:
        yield "limit key", clean(run.limit_key)
    if run.labels:
        yield "labels", clean(_labels(run.labels), VALUE_MAX)


def _labels(labels: dict[str, Any]) -> str:
    if MARK in labels:
        return f"{UNREADABLE} ({labels[MARK]})"
    return " ".join(f"{key}={value}" for key, value in labels.items())


def _relatives(
    run: Run, children: Sequence[Run], counts: ChildCounts | None, status: Callable[[str], str]
) -> Iterator[Fact]:
    """The first and the present run of its chain, its parent, its children."""
    if run.chain != run.id:
        yield "chain", f"began with run {run.chain}"
    if run.present != run.id:
        yield "continued", f"as run {run.present}"
    if run.origin is not None:
        yield "repeats", f"run {run.origin}"
    if run.parent is not None:
        step = f" (step {clean(run.parent_step)})" if run.parent_step else ""
        yield "parent", f"{run.parent}{step}"
    if children:
        named = ", ".join(f"{short(one.id)} {status(one.status)}" for one in children[:CHILDREN_SHOWN])
        left = (len(children) if counts is None else counts.total) - CHILDREN_SHOWN
        many = f"{left:,} or more" if counts is not None and counts.more else f"{left:,}"
        summed = f"{children_words(counts)}: " if counts is not None else ""
        yield "children", summed + named + (f" and {many} others" if left > 0 else "")


def _value(text: Json | None) -> str:
    value = clean(raw_text(text if text is not None else "null"), VALUE_MAX)
    return value if len(value) <= VALUE_MAX else f"{value[:-1]}; --json prints all)"
