"""The open waits of a run in words."""

from __future__ import annotations

from datetime import datetime

from holdfast.lifecycle import StepKind
from holdfast.records import Run, Step, moment

from .text import clean, short
from .times import ago, short_stamp

WAITS_SHOWN = 5  # of one run; --json prints all


def waits(run: Run, now: datetime) -> str:
    """The first open waits of a run: each with its beginning and its deadline."""
    left = len(run.waiting_on) - WAITS_SHOWN
    more = [f"and {left:,} more"] if left > 0 else []
    return "; ".join([*(_wait(step, now) for step in run.waiting_on[:WAITS_SHOWN]), *more])


def _wait(step: Step, now: datetime) -> str:
    began = f", began {_began(moment(step.started_at), now)}" if step.started_at else ""
    return f"{_awaited(step)}{began}{_end(step, now)}"


def _awaited(step: Step) -> str:
    match step.kind:
        case StepKind.SLEEP:
            return "a timer"
        case StepKind.EVENT:
            return f"an event on {clean(step.topic)!r}"
        case StepKind.APPROVAL:
            return f"a decision at gate {clean(step.key)}"
        case StepKind.CHILD:
            return f"child run {short(str(step.child))} (step {clean(step.key)})"
        case StepKind.TASK:
            awaited = f"an event on {clean(step.topic)!r}" if step.topic else "a timer"
            return f"{awaited}, for task {clean(step.key)}"
        case _:
            return f"{step.kind} {clean(step.key)}"


def _began(at: datetime, now: datetime) -> str:
    relative = ago(at, now)
    return "just now" if relative == "now" else relative


def _end(step: Step, now: datetime) -> str:
    if not step.due_at:
        return ""
    due_at = moment(step.due_at)
    timer = step.kind is StepKind.SLEEP or (step.kind is StepKind.TASK and not step.topic)
    return f", {'fires at' if timer else 'deadline'} {short_stamp(due_at, now)} ({ago(due_at, now)})"
