"""Open waits in words and in data, for `explain`."""

from __future__ import annotations

from typing import Any

from holdfast.escaping import escaped, inline
from holdfast.lifecycle import StepKind, spoken_status
from holdfast.records import Run, Step, moment
from holdfast.records.unreadable import read_object
from holdfast.shell import command_of

from .explanation import SHOWN, Known, at_text, no_worker_live, quoted


def waits_text(run: Run, known: Known) -> str:
    """The first few waits in words."""
    if not run.waiting_on:
        return "an unknown reason: `holdfast doctor` finds runs that are stuck"
    words = [_wait(run, step, known) for step in run.waiting_on[:SHOWN]]
    left = len(run.waiting_on) - SHOWN
    return "; ".join(words) + (f"; and {left} more" if left > 0 else "")


def _wait(run: Run, step: Step, known: Known) -> str:
    since = "" if step.started_at is None else f" since {at_text(moment(step.started_at))}"
    return f"{_awaited(step, known)}{since}{_until(step, known)}{_fix(run, step, known)}"


def _awaited(step: Step, known: Known) -> str:
    match step.kind:
        case StepKind.SLEEP:
            return f"a timer ({inline(step.key)})"
        case StepKind.EVENT:
            return f"an event on {quoted(step.topic)}"
        case StepKind.APPROVAL:
            asked = inline(_asked(step))
            return f"a decision at gate {quoted(step.key)}" + (f" ({asked})" if asked else "")
        case StepKind.CHILD:
            child = known.children.get(step.child) if step.child is not None else None
            how = f" ({inline(child.type)}, {spoken_status(child.status)})" if child is not None else ""
            return f"its child run {step.child}{how}, step {quoted(step.key)},"
        case _:
            topic = f" for an event on {quoted(step.topic)}" if step.topic is not None else ""
            return f"its task {quoted(step.key)}, which waits{topic}"


def _until(step: Step, known: Known) -> str:
    if step.due_at is None:
        return ""
    due_at, late = moment(step.due_at), ""
    if step.due_at <= known.now:
        late = f": this time has passed, and a worker will end the wait{no_worker_live(due_at, known)}"
    return f", until {at_text(due_at)}{late}"


def _fix(run: Run, step: Step, known: Known) -> str:
    if step.kind is StepKind.APPROVAL:
        return f": `{command_of(f'approve {run.id}', escaped(step.key))}`, or `reject`, decides"
    child = known.children.get(step.child) if step.child is not None else None
    if child is not None and child.deleted_at is not None:
        return (
            f", which is deleted: `holdfast restore {child.id}` lets it continue; "
            "after a purge the wait ends with status `gone`"
        )
    return ""


def child_text(run: Run, known: Known) -> str:
    """A sentence that says why the first open child run does not move; empty if it does."""
    if known.child is None:
        return ""
    child, why = known.child
    count = sum(one.kind is StepKind.CHILD for one in run.waiting_on)
    first = f", the first of {count:,}," if count > 1 else ""
    text = why.text.rstrip(".")
    # Sentences of `explain` begin with a word of ours, never with a name.
    text = f"{text[:1].lower()}{text[1:]}"
    return f" Child run {child}{first} says: {text}; more: `holdfast explain {child}`."


def child_data(known: Known) -> dict[str, Any]:
    """The same as data: the id of that child run, and the word for its reason."""
    return {} if known.child is None else {"child": {"id": known.child[0], "reason": known.child[1].reason}}


def _asked(step: Step) -> str:
    """The question of a gate in a few words; empty if it is encrypted."""
    return escaped(read_object(step.ask).get("ask") or "")


def waits_data(run: Run, known: Known) -> list[dict[str, Any]]:
    return [
        {
            "step": one.key,
            "kind": str(one.kind),
            "topic": one.topic,
            "due_at": None if one.due_at is None else moment(one.due_at),
            "since": None if one.started_at is None else moment(one.started_at),
            **({"ask": _asked(one), "digest": one.digest} if one.kind is StepKind.APPROVAL else {}),
            **(_child(one, known) if one.kind is StepKind.CHILD else {}),
        }
        for one in run.waiting_on
    ]


def _child(step: Step, known: Known) -> dict[str, Any]:
    child = known.children.get(step.child) if step.child is not None else None
    return {
        "child": step.child,
        "child_status": None if child is None else str(child.status),
        "child_deleted_at": None if child is None else child.deleted_at,
    }
