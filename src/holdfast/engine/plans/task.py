"""What a handler of a plan's task is given: why it is called, with what, and where it may say things."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from holdfast.arguments import check_name
from holdfast.codec import plain, unwrapped
from holdfast.engine.arrived import Came, event, event_of
from holdfast.engine.failures import text
from holdfast.engine.gates import decision
from holdfast.engine.steps import add_cost, progress_of
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Event, Step, TrailWrite

if TYPE_CHECKING:
    from holdfast.engine.steps import Scope

    from .execution import PlanExecution

Reason = Literal["start", "retry", "event", "timeout"]


class PlanTask:
    """One execution of a task. Its handler completes it, lets it wait, or has it tried again.

    BadValue when the event that it is called for cannot be read.
    """

    def __init__(self, execution: PlanExecution, step: Step, scope: Scope) -> None:
        self._run, self._step, self._scope = execution, step, scope
        self.reason, self.event = _woken(step, execution.attempt)
        self.outputs = Outputs(execution)

    @property
    def run_id(self) -> UUID:
        """The id of this run."""
        return self._run.claim.id

    @property
    def tenant(self) -> str:
        """Who this run belongs to."""
        return self._run.claim.tenant

    @property
    def labels(self) -> dict[str, str]:
        """What this run is tagged with: of a schedule's, `fire_at` is the time that it stands for."""
        return self._run.claim.labels

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._step.key

    @property
    def number(self) -> int:
        """Its place in the plan, from 0."""
        return self._step.seq

    @property
    def attempt(self) -> int:
        """Executions begun since the run last made progress; the first is 1."""
        return self._run.attempt

    @property
    def params(self) -> Any:
        """What the run was started with, in the type that the plan's `params=` says."""
        plan = self._run.plan
        return plan.params.decode(self._run.claim.params, f"params of {plan.type}")

    @property
    def idempotency_key(self) -> str:
        """This task's own key for the outside world, the same at every try, takeover and rewind."""
        return f"{self.run_id}:{self.name}"

    @property
    def cancelled(self) -> bool:
        """The run was cancelled, lost, or is to stop: come to an end."""
        return self._scope.over or self._run.cancelled

    def log(self, /, message: str, level: str = "info", **data: Any) -> None:
        """Add a row to the trail with the commit of this execution."""
        self._check()
        said = {"message": text(message), "level": check_name("level", level), "step": self.name}
        row = {**data, **said}
        self._run.journal.note(TrailWrite("log", plain.encode(row, f"log {text(message, 40)!r}")))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """How far the run is, for people; written with the next commit or renewal, at most once a second."""
        self._check()
        self._run.journal.progress(progress_of(done, total, note))

    def cost(self, amount: float) -> None:
        """What this execution has cost so far; `Completed(cost=)` adds to it."""
        self._check()
        add_cost(self._scope, amount)

    def _check(self) -> None:
        if self._scope.over:
            raise asyncio.CancelledError(f"task {self.name!r} was given up: return")


class Outputs(Mapping[str, Any]):
    """What earlier steps came to, by name: a task's output, an awaited event, a decision."""

    def __init__(self, execution: PlanExecution) -> None:
        self._run = execution

    def __getitem__(self, name: str) -> Any:
        """In the type that its handler's annotation says."""
        step = self._run.rows.get(name)
        if step is None or step.status is not StepStatus.SUCCEEDED:
            raise KeyError(name)
        match step.kind:
            case StepKind.APPROVAL:
                return decision(step)
            case StepKind.EVENT:
                return event_of(step.output, f"the event of step {name!r}")
            case _:
                handler = self._run.handler(name)
                codec = plain if handler is None else handler.codec
                return codec.decode(step.output or "null", f"the recorded output of step {name!r}")

    def __iter__(self) -> Iterator[str]:
        """In the order of the plan."""
        return (step.key for step in self._run.rows.values() if step.status is StepStatus.SUCCEEDED)

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)


class _Wake(msgspec.Struct):
    reason: Literal["event", "timeout"]
    event: Came | None = None


def _woken(step: Step, attempt: int) -> tuple[Reason, Event | None]:
    if step.wake is None:
        return ("start" if attempt <= 1 else "retry"), None
    what = f"the event that called step {step.key!r}"
    found = unwrapped(step.wake, _Wake, what)
    return found.reason, None if found.event is None else event(found.event, what)
