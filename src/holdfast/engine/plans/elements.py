"""Elements of a plan: tasks, gates, awaited events and sleeps. Each is one row from the start of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.arguments import Seconds, check_attempts, check_budget, check_duration, check_topic
from holdfast.clipped import clipped
from holdfast.engine.code.approvals import shown
from holdfast.engine.definitions import STEPS_MAX
from holdfast.errors import UsageError
from holdfast.lifecycle import StepKind
from holdfast.records import PlanStep
from holdfast.step_keys import check_call_name


class Task(msgspec.Struct, frozen=True):
    """A step that a handler executes. `attempts`: its number of tries, by default that of the run.

    `cost_max`: what one try may cost at most; a run whose budget may not pay for it pauses before the try.
    """

    name: str
    attempts: int | None = None
    cost_max: float | None = None


class Approval(msgspec.Struct, frozen=True):
    """A gate: the run waits until a person decides, and fails if rejected. `on_timeout`: the decision at the
    timeout.
    """

    name: str
    ask: str = ""
    data: Any = None
    timeout: Seconds | None = None
    on_timeout: Literal["reject", "approve"] = "reject"


class Wait(msgspec.Struct, frozen=True):
    """A wait for an event on `topic`, which is the step's output. The run fails if none comes in time."""

    name: str
    topic: str
    timeout: Seconds | None = None


class Sleep(msgspec.Struct, frozen=True):
    """A wait for a fixed time."""

    name: str
    duration: Seconds


Element = Task | Approval | Wait | Sleep


def rows(type_: str, steps: Sequence[Element]) -> tuple[PlanStep, ...]:
    """Return the rows with which a run of this plan begins; UsageError when the list is not valid."""
    made = tuple([_row(type_, one) for one in steps])
    if not made:
        raise UsageError(
            f"plan {type_} has no steps: give a list, as in [hf.Task('CHARGE'), hf.Task('SHIP')]"
        )
    seen: set[str] = set()
    for one in made:
        if one.name in seen:
            raise UsageError(
                f"plan {type_} has two steps {one.name!r}: give each step its own name, for its handler"
            )
        seen.add(one.name)
    return made


def costs(type_: str, steps: Sequence[Element]) -> dict[str, int]:
    """Return what one try of a task may cost at most, in units, by its name."""
    return {
        one.name: check_budget(f"plan {type_}, step {one.name!r}: cost_max", one.cost_max)
        for one in steps
        if isinstance(one, Task) and one.cost_max is not None
    }


def listed(type_: str, steps: Any) -> list[Element]:
    """Return the elements of a plan; UsageError when they are no list of steps with names."""
    if isinstance(steps, str | Element) or not hasattr(steps, "__iter__"):
        raise UsageError(f"plan {type_}: {clipped(steps)} is not a list of steps, such as [hf.Task('SHIP')]")
    found: list[Any] = list(steps)
    if len(found) > STEPS_MAX:
        raise UsageError(
            f"plan {type_} has {len(found):,} steps, the limit is {STEPS_MAX:,}: "
            f"split it into several plans, or write a code workflow with a loop"
        )
    for one in found:
        name = getattr(one, "name", None)
        if not isinstance(one, Element):
            raise UsageError(
                f"plan {type_}: {clipped(one)} is not a step: give Task, Approval, Wait or Sleep, "
                f"as in hf.Task('SHIP')"
            )
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"plan {type_} has a step without a name: {clipped(one)}")
    return found


def _row(type_: str, one: Element) -> PlanStep:
    name = check_call_name(one.name)
    what = f"plan {type_}, step {name!r}"
    match one:
        case Task():
            attempts = None if one.attempts is None else check_attempts(f"{what}: attempts", one.attempts)
            return PlanStep(name=name, max_attempts=attempts)
        case Approval():
            gate: dict[str, Any] = {**shown(name, one.ask, one.data, one.on_timeout)}
            kind, timeout = StepKind.APPROVAL, check_span(f"{what}: timeout", one.timeout)
            return PlanStep(name=name, kind=kind, timeout_seconds=timeout, **gate)
        case Wait():
            timeout = check_span(f"{what}: timeout", one.timeout)
            topic = check_topic(one.topic)
            return PlanStep(name=name, kind=StepKind.EVENT, topic=topic, timeout_seconds=timeout)
        case Sleep():
            duration = check_duration(f"{what}: duration", one.duration)
            return PlanStep(name=name, kind=StepKind.SLEEP, timeout_seconds=duration)


def check_span(what: str, span: Seconds | None) -> float | None:
    """Check an optional duration and return its seconds."""
    return None if span is None else check_duration(what, span)
