"""The trail in words: one short sentence for each entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.engine.failures import AT_ONCE
from holdfast.engine.tracebacks import user_frame
from holdfast.lifecycle import StepKind
from holdfast.records import Error, TrailEntry
from holdfast.records.unreadable import MARK, UNREADABLE

from .text import clean, short
from .times import span

Data = dict[str, Any]
# Errors from data of another shape: a worker in another language may write rows of its own.
_ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def sentence(entry: TrailEntry) -> str:
    """The sentence for an entry, safe to print."""
    say = _SENTENCES.get(entry.type)
    if say is None:
        return f"{clean(entry.type)} {clean(entry.data_json)}"
    data = entry.data
    if MARK in data:
        return f"{entry.type}: {UNREADABLE} ({clean(data[MARK])})"
    try:
        return clean(say(data))
    except _ODD:
        return f"{entry.type}: {UNREADABLE} (unexpected fields): {clean(entry.data_json)}"


def _leased(data: Data) -> str:
    count = data.get("attempt", 1)
    again = f", execution {count} since the last finished step" if count > 1 else ""
    return f"running on {data.get('worker')}{again}"


def _waiting(data: Data) -> str:
    kind, step = data.get("kind"), str(data.get("step"))
    if kind == StepKind.SLEEP:
        return f"waits for a timer (step {step})"
    if kind == StepKind.TASK:
        return f"task {step} waits"
    return f"waits for {kind} {step.removeprefix('event:')!r}"


def _woken(data: Data) -> str:
    step = str(data.get("step"))
    if data.get("child"):
        return f"child run {short(str(data['child']))} of step {step} has ended"
    if data.get("event"):
        topic = step.removeprefix("event:")
        return f"event {topic!r} arrived" if topic != step else f"an event arrived (step {step})"
    return f"timer fired (step {step})"


def _timed_out(data: Data) -> str:
    step = data.get("step")
    return f"step {step} reached its deadline" if step else "the run reached its timeout"


def _retried(data: Data) -> str:
    if data.get("by"):
        return f"retried by {data['by']}"
    if data.get("error") is None and "step" not in data:  # a bulk operation that waits for its next turn
        return f"left its slot; continues in {span(float(data.get('delay') or 0))}"
    failed = f"step {data['step']}" if data.get("step") else "the execution"
    later = f"; retry in {span(float(data['delay']))}" if data.get("delay") is not None else ""
    return f"{failed} failed{_attempts(data)}{_because(data.get('error'))}{later}"


def _attempts(data: Data) -> str:
    if data.get("attempt") is None or data.get("max_attempts") is None:
        return ""
    return f", attempt {data['attempt']} of {data['max_attempts']}"


def _because(error: Any) -> str:
    if not isinstance(error, dict):
        return f" ({error})" if error else ""
    frame = user_frame(Error(kind="", traceback=str(error.get("traceback") or "")))
    said = ": ".join(str(error[part]) for part in ("type", "message") if error.get(part))
    words = ", at ".join(filter(None, (said, str(frame or ""))))
    return f" ({words})" if words else ""


def _created(data: Data) -> str:
    repeats = f", repeats run {data['origin']}" if data.get("origin") else ""
    return _by(f"started as {data.get('type')}")(data) + repeats


def _cancelled(data: Data) -> str:
    return f"the code stopped waiting for {data['step']}" if "step" in data else _by("cancelled")(data)


def _paused(data: Data) -> str:
    before = f" before step {data['step']}" if data.get("step") else ""
    costs = f", which may cost up to {data['cost_max']:g}" if data.get("cost_max") else ""
    return _by("paused")(data) + before + costs


def _failed(data: Data) -> str:
    kind, message = str(data.get("kind")), str(data.get("message") or "")
    tries = "" if kind in AT_ONCE else _attempts(data)
    why = f": {message.removeprefix(kind + ': ')}" if message else ""  # hidden from readers without values
    return f"failed{tries} ({kind}){why}"


def _log(data: Data) -> str:
    rest = {key: value for key, value in data.items() if key not in ("message", "level", "log_no", "step")}
    more = " ".join(f"{key}={value}" for key, value in rest.items())
    return f"log {data.get('level', 'info')}: {data.get('message', 'hidden')} {more}".rstrip()


def _decided(verb: str) -> Callable[[Data], str]:
    def say(data: Data) -> str:
        why = f": {data['comment']}" if data.get("comment") else ""
        return _by(f"gate {data.get('step')} {verb}")(data) + why

    return say


def _by(verb: str) -> Callable[[Data], str]:
    return lambda data: f"{verb} by {data['by']}" if data.get("by") else verb


_SENTENCES: dict[str, Callable[[Data], str]] = {
    "created": _created,
    "leased": _leased,
    "started": lambda _: "execution begins",
    "heartbeat": lambda data: f"heartbeat of {data.get('worker')}",
    "step_added": lambda data: f"step {data.get('step')} added to the plan",
    "step_succeeded": lambda data: f"step {data.get('step')} succeeded",
    "step_failed": lambda data: f"step {data.get('step')} failed{_because(data.get('error'))}",
    "waiting": _waiting,
    "approval_opened": lambda data: f"gate {data.get('step')} waits for a decision",
    "approved": _decided("approved"),
    "rejected": _decided("rejected"),
    "child_started": lambda data: (
        f"child run {short(str(data.get('child')))} started by step {data.get('step')}"
    ),
    "woken": _woken,
    "timed_out": _timed_out,
    "retried": _retried,
    "released": lambda _: "released by its worker",
    "lease_expired": lambda data: f"lease expired: no sign of life from {data.get('worker')}",
    "paused": _paused,
    "budget_set": lambda data: _by(f"budget set to {data.get('budget'):g}")(data),
    "resumed": _by("resumed"),
    "cancelled": _cancelled,
    "rewound": lambda data: _by(f"rewound to step {data.get('step')}")(data),
    "reprioritized": lambda data: _by(f"priority set to {data.get('priority')}")(data),
    "deleted": _by("deleted"),
    "restored": _by("restored"),
    "imported": _by("imported"),
    "leaving": lambda data: _by(f"leaves for {data.get('to')}, stopped")(data),
    "left": _by("has left for the other store, recorded"),
    "went_on": _by("goes on at the other store, recorded"),
    "returned": _by("came back, let go on"),
    "arrived": _by("arrived from the other store, let go on"),
    "succeeded": lambda _: "succeeded",
    "failed": _failed,
    "log": _log,
}
