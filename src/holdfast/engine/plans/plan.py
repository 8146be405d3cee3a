"""The definition of a plan: a versioned name, its steps, a policy, and the handlers of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast.arguments import Seconds, check_text, check_whole
from holdfast.backoff import Backoff
from holdfast.codec import Codec, annotated, untyped
from holdfast.engine.definitions import Defined
from holdfast.engine.schemas import schema_of
from holdfast.engine.signatures import check_annotation, check_handler, is_async
from holdfast.engine.typed import P_contra
from holdfast.errors import UsageError
from holdfast.lifecycle import StepKind
from holdfast.records import Definition
from holdfast.step_keys import check_step_name

from .elements import Element, check_span, costs, listed, rows
from .outcomes import output_codec, output_type

F = TypeVar("F", bound=Callable[..., Any])

MAX_WAITS = 1000


class Handler(msgspec.Struct, frozen=True):
    """The function that executes a task, and the codec of its output."""

    function: Callable[[Any], Any]
    is_async: bool
    codec: Codec
    only_this_version: bool = False  # not for runs of other versions of its plan


class Plan(Defined[P_contra, Any]):
    """A plan, made by `app.plan` from a list of steps. `@plan.task("SHIP")` registers the handler of a
    task. Type checkers know it as `Plan[P]`: P is the type of its params.
    """

    takes_params = True
    stands_in = False  # True when it serves another version, which is not defined here: see versions.py

    def __init__(
        self,
        type_: str,
        steps: Sequence[Element],
        *,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        budget: float | None = None,
        budget_covers_children: bool = False,
        params: Any = Any,
        max_waits: int = MAX_WAITS,
        no_handler_after: Seconds | None = None,
        description: str = "",
    ) -> None:
        super().__init__(type_, retry, timeout, budget, budget_covers_children=budget_covers_children)
        elements = listed(self.type, steps)
        self.steps = rows(self.type, elements)
        self.costs = costs(self.type, elements)
        self._kinds = {one.name: one.kind for one in self.steps}
        if params is not Any:
            check_annotation(f"plan {type_}: params=", params)
            self.params = Codec(params)
        self.max_waits = check_whole(f"plan {type_}: max_waits", max_waits, 1)
        self.description = check_text("description", description)
        self.no_handler_seconds = check_span(f"plan {type_}: no_handler_after", no_handler_after)
        self.handlers: dict[str, Handler] = {}

    def __repr__(self) -> str:
        """Return a short text for messages."""
        return f"<plan {self.type}>"

    def task(self, name: str, *, only_this_version: bool = False) -> Callable[[F], F]:
        """Register the function that executes a task: async, or sync, which runs in a thread.

        The task may also be a step that `append_step` adds to a run. The function executes the task of this
        name also in runs of other versions that have no handler of their own here, unless
        `only_this_version` is set.
        """
        if callable(name):
            raise UsageError(f'plan {self.type}: a handler needs its task\'s name: write @plan.task("SHIP")')
        name = check_step_name(name)
        kind = self._kinds.get(name, StepKind.TASK)
        if kind is not StepKind.TASK:
            raise UsageError(f"plan {self.type}: step {name!r} has kind {kind}: only tasks have handlers")
        if name in self.handlers:
            raise UsageError(f"plan {self.type}: task {name!r} has a handler already")

        def named(function: F) -> F:
            what, hints = f"plan {self.type}: the handler of {name!r}", annotated(function)
            check_handler(what, function, hints)
            check_annotation(f"{what}: its output", output_type(hints), result=True)
            codec = output_codec(function)
            made = self.handlers[name] = Handler(function, is_async(function), codec, only_this_version)
            if name == self.steps[-1].name:
                self.result = made.codec  # a run's result is the output of its last task
            return function

        return named

    def result_of(self, cursor: str | None) -> Codec:
        """Return the codec for the output of a run's last step, which may have been appended to the run."""
        handler = self.handlers.get(cursor or "")
        return untyped if handler is None else handler.codec

    @property
    def missing(self) -> tuple[str, ...]:
        """The tasks that have no handler of this version."""
        tasks = [one.name for one in self.steps if one.kind is StepKind.TASK]
        return tuple(name for name in tasks if name not in self.handlers)

    def definition(self) -> Definition:
        """Return the published definition, which holds everything that a start by name needs."""
        return Definition(
            type=self.type,
            kind="plan",
            max_attempts=self.retry.attempts,
            timeout_seconds=self.timeout_seconds,
            description=self.description,
            steps=self.steps,
            budget=self.budget,
            covers_children=self.budget_covers_children,
            params_schema=schema_of(self.params.wanted),
        )
