"""The argument of a plan's handler: the reason of the call, params, earlier outputs, and logging."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.arguments import check_name
from holdfast.codec import untyped, unwrapped
from holdfast.engine.code.approvals import decision
from holdfast.engine.code.events import RecordedEvent, event, event_of
from holdfast.engine.code.scope import add_cost, progress_of
from holdfast.engine.failures import text
from holdfast.engine.run_facts import RunFacts
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Event, Step, TrailWrite

if TYPE_CHECKING:
    from holdfast.engine.code.scope import Scope

    from .execution import PlanExecution

Reason = Literal["start", "retry", "event", "timeout"]


class PlanTask(RunFacts):
    """One execution of a task. The handler completes it, lets it wait, or asks for a retry.

    BadValue when the event that woke the task cannot be read.
    """

    def __init__(self, execution: PlanExecution, step: Step, scope: Scope) -> None:
        self._run: PlanExecution = execution
        self._step, self._scope = step, scope
        self.reason, self.event = _woken(step, execution.attempt)
        self.outputs = Outputs(execution)

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._step.key

    @property
    def number(self) -> int:
        """The position of the task in the plan, from 0."""
        return self._step.seq

    @property
    def max_attempts(self) -> int:
        """How many executions of this task may fail; then the run fails."""
        return self._step.max_attempts or self._run.claim.max_attempts

    @property
    def params(self) -> Any:
        """The params of the run, in the type of the plan's `params=`."""
        plan = self._run.plan
        return plan.params.decode(self._run.claim.params, f"params of {plan.type}")

    @property
    def idempotency_key(self) -> str:
        """The key of this task for calls to other systems, the same at every try, takeover and rewind."""
        return f"{self.run_id}:{self.name}"

    @property
    def cancelled(self) -> bool:
        """True when the run was cancelled or lost, or its worker stops: the handler should return."""
        return self._scope.over or self._run.stopped

    def log(self, /, message: str, level: str = "info", **data: Any) -> None:
        """Add a row to the trail with the commit of this execution."""
        self._check()
        said = {"message": text(message), "level": check_name("level", level), "step": self.name}
        row = {**data, **said}
        self._run.journal.note(TrailWrite("log", untyped.encode(row, f"log {text(message, 40)!r}")))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show people how far the run is; written with the next commit or renewal, at most once a second."""
        self._check()
        self._run.journal.progress(progress_of(done, total, note))

    def cost(self, amount: float) -> None:
        """Add to the cost of this execution; `Completed(cost=)` adds to it too."""
        self._check()
        add_cost(self._scope, amount)

    def _check(self) -> None:
        if self._scope.over:
            raise asyncio.CancelledError(f"task {self.name!r} was given up: return")


class Outputs(Mapping[str, Any]):
    """Results of earlier steps by name: the output of a task, an awaited event, a decision."""

    def __init__(self, execution: PlanExecution) -> None:
        self._run = execution

    def __getitem__(self, name: str) -> Any:
        """Return the result of a step, in the type of its handler's annotation."""
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
                codec = untyped if handler is None else handler.codec
                return codec.decode(step.output or "null", f"the recorded output of step {name!r}")

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the order of the plan."""
        return (step.key for step in self._run.rows.values() if step.status is StepStatus.SUCCEEDED)

    def __len__(self) -> int:
        """Return the number of results."""
        return sum(1 for _ in self)


class _Wake(msgspec.Struct):
    reason: Literal["event", "timeout"]
    event: RecordedEvent | None = None


def _woken(step: Step, attempt: int) -> tuple[Reason, Event | None]:
    if step.wake is None:
        return ("start" if attempt <= 1 else "retry"), None
    what = f"the event that called step {step.key!r}"
    found = unwrapped(step.wake, _Wake, what)
    return found.reason, None if found.event is None else event(found.event, what)
