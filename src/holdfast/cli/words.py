"""The trail in words: one short sentence for each thing that happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from holdfast.lifecycle import StepKind
from holdfast.records import Run, Step, TrailEntry, moment
from holdfast.records.reading import MARK, UNREADABLE

from .find import short
from .text import ago, clean, clock, span

Data = dict[str, Any]
WAITS_SHOWN = 5  # of one run; --json prints all
# Errors from data of another shape: a worker in plain SQL may write rows of its own.
_ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def sentence(entry: TrailEntry) -> str:
    """What happened, for people."""
    say = _SENTENCES.get(entry.type)
    if say is None:
        return f"{clean(entry.type)} {clean(entry.data_json)}"
    text, colour = say
    data = entry.data
    if MARK in data:
        return f"{entry.type}: {UNREADABLE} ({clean(data[MARK])})"
    try:
        said = clean(text(data))
    except _ODD:
        return f"{entry.type}: {UNREADABLE} (not what such a row holds): {clean(entry.data_json)}"
    return click.style(said, fg=colour) if colour else said


def line(entry: TrailEntry, *, with_run: bool = False) -> str:
    """A sentence with its time, and its run where several are told of."""
    run = f"{short(entry.run)}  " if with_run else ""
    return f"{click.style(clock(entry.at), dim=True)}  {run}{sentence(entry)}"


def _leased(data: Data) -> str:
    again = f", execution {data['attempt']} since its last progress" if data.get("attempt", 1) > 1 else ""
    return f"taken by {data.get('worker')}{again}"


def _waiting(data: Data) -> str:
    kind, step = data.get("kind"), str(data.get("step"))
    if kind == StepKind.SLEEP:
        return f"sleeps ({step})"
    if kind == StepKind.TASK:
        return f"task {step} waits"
    return f"waits for {kind} {step.removeprefix('event:')!r}"


def _woken(data: Data) -> str:
    if data.get("child"):
        return f"child {short(str(data['child']))} of {data.get('step')} has ended"
    return f"{data.get('step')} came" if data.get("event") else f"{data.get('step')} is over"


def _timed_out(data: Data) -> str:
    step = data.get("step")
    return f"{step} did not come in time" if step else "the run's own time is over"


def _retried(data: Data) -> str:
    if data.get("by"):
        return f"retried by {data['by']}"
    what = f"step {data['step']}" if data.get("step") else "the execution"
    later = f", again in {span(float(data['delay']))}" if data.get("delay") is not None else ""
    return f"{what} failed{_tries(data)}{_because(data.get('error'))}{later}"


def _tries(data: Data) -> str:
    if data.get("attempt") is None or data.get("max_attempts") is None:
        return ""
    return f", attempt {data['attempt']} of {data['max_attempts']}"


def _because(error: Any) -> str:
    if isinstance(error, dict):
        error = ": ".join(str(error[part]) for part in ("type", "message") if error.get(part))
    return f" ({error})" if error else ""


def _cancelled(data: Data) -> str:
    return f"the code stopped waiting for {data['step']}" if "step" in data else _by("cancelled")(data)


def _failed(data: Data) -> str:
    kind, message = str(data.get("kind")), str(data.get("message") or "")
    return f"failed, {kind}{_tries(data)}: {message.removeprefix(kind + ': ')}"


def _log(data: Data) -> str:
    rest = {key: value for key, value in data.items() if key not in ("message", "level", "log_no", "step")}
    more = " ".join(f"{key}={value}" for key, value in rest.items())
    return f"log {data.get('level', 'info')}: {data.get('message')} {more}".rstrip()


def _decided(verb: str) -> Callable[[Data], str]:
    def say(data: Data) -> str:
        by = f" by {data['by']}" if data.get("by") else ""
        why = f": {data['comment']}" if data.get("comment") else ""
        return f"gate {data.get('step')} {verb}{by}{why}"

    return say


def by_whom(who: str) -> str:
    """Who asked for something, if he said so."""
    return f" by {clean(who)}" if who else ""


def _by(verb: str) -> Callable[[Data], str]:
    return lambda data: f"{verb} by {data['by']}" if data.get("by") else verb


_SENTENCES: dict[str, tuple[Callable[[Data], str], str | None]] = {
    "created": (lambda data: f"started as {data.get('type')}", None),
    "leased": (_leased, "cyan"),
    "started": (lambda _: "execution begins", None),
    "heartbeat": (lambda data: f"still at it: {data.get('worker')}", None),
    "step_added": (lambda data: f"step {data.get('step')} added to its plan", None),
    "step_succeeded": (lambda data: f"step {data.get('step')} recorded", "green"),
    "step_failed": (lambda data: f"step {data.get('step')} failed{_because(data.get('error'))}", "red"),
    "waiting": (_waiting, "yellow"),
    "approval_opened": (lambda data: f"gate {data.get('step')} waits for a decision", "yellow"),
    "approved": (_decided("approved"), "green"),
    "rejected": (_decided("rejected"), "red"),
    "child_started": (
        lambda data: f"child {short(str(data.get('child')))} started as {data.get('step')}",
        None,
    ),
    "woken": (_woken, None),
    "timed_out": (_timed_out, "red"),
    "retried": (_retried, "yellow"),
    "released": (lambda _: "given back by its worker", None),
    "lease_expired": (lambda data: f"lease expired: {data.get('worker')} is gone", "red"),
    "paused": (_by("paused"), "magenta"),
    "resumed": (_by("resumed"), None),
    "cancelled": (_cancelled, "red"),
    "rewound": (lambda data: _by(f"rewound to {data.get('step')}")(data), "magenta"),
    "reprioritized": (lambda data: _by(f"priority {data.get('priority')}")(data), None),
    "deleted": (_by("deleted"), "red"),
    "restored": (_by("restored"), None),
    "succeeded": (lambda _: "succeeded", "green"),
    "failed": (_failed, "red"),
    "log": (_log, None),
}


def waits(run: Run, now: Any) -> str:
    """The first open waits of a run: on what, since when, until when."""
    left = len(run.waiting_on) - WAITS_SHOWN
    more = [f"and {left:,} more"] if left > 0 else []
    return "; ".join([*(_wait(step, now) for step in run.waiting_on[:WAITS_SHOWN]), *more])


def _wait(step: Step, now: Any) -> str:
    what = {
        StepKind.SLEEP: "a timer",
        StepKind.EVENT: f"an event on {clean(step.topic)!r}",
        StepKind.APPROVAL: f"a decision at gate {clean(step.key)}",
        StepKind.CHILD: f"child {short(str(step.child))} ({clean(step.key)})",
        StepKind.TASK: f"{_topic(step)}, for task {clean(step.key)}",
    }.get(step.kind, f"{step.kind} {clean(step.key)}")
    since = f" since {_since(moment(step.started_at), now)}" if step.started_at else ""
    until = f", until {clock(moment(step.due_at))} ({ago(moment(step.due_at), now)})" if step.due_at else ""
    return f"{what}{since}{until}"


def _topic(step: Step) -> str:
    return f"an event on {clean(step.topic)!r}" if step.topic else "a timer"


def _since(at: datetime, now: datetime) -> str:
    said = ago(at, now)
    return "just now" if said == "now" else said
