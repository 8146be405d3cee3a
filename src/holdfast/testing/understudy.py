"""Parts taken over: what a step would call is replaced by a test's own, and every call of a step is noted.

Nothing of the engine is changed. A workflow is given a context whose `step` and `map` hand on another
function; its results are recorded as those of the function that it stands for.
"""

from __future__ import annotations

import copy
import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial, wraps
from types import CodeType, FunctionType
from typing import Any, cast

from msgspec.structs import replace

from holdfast.engine.definitions import Defined, Workflow
from holdfast.engine.plans.plan import Handler, Plan
from holdfast.engine.plans.task import PlanTask
from holdfast.engine.steps import SCOPE, Scope
from holdfast.engine.transactions import transaction_name
from holdfast.errors import UsageError
from holdfast.records import Claim

Begun = Callable[[Claim, str], None]  # the claim under which a step begins, and its key; "" for the body


class Parts:
    """Who plays what: functions by the function that they stand for."""

    def __init__(self, replaced: Mapping[Any, Any] | None = None, begun: Begun | None = None) -> None:
        self._replaced: dict[Any, Any] = {}
        self._begun = begun
        for function, other in (replaced or {}).items():
            self.replace(function, other)

    def replace(self, function: Callable[..., Any], other: Callable[..., Any]) -> None:
        """From now on steps call `other` where they would call `function`."""
        for given in (function, other):
            if not callable(given):
                raise UsageError(f"replace: {given!r} cannot be called: give two functions")
        self._replaced[function] = other

    def enter(self, execution: Any) -> None:
        """The body begins."""
        if self._begun is not None:
            self._begun(execution.claim, "")

    def of(self, function: Any, execution: Any) -> Any:
        """What a step is to call."""
        if isinstance(function, Part) or not callable(function):
            return function
        other = self._stand_in(function)
        if other is None:
            if self._replaced:
                self._refuse_real(function)
            if self._begun is None:
                return function
        return Part(function, function if other is None else other, self._begun, execution.claim)

    def _stand_in(self, function: Any) -> Any:
        """Who was named for it, also behind a partial or a method; None if nobody was."""
        try:
            named = self._replaced.get(function)
        except TypeError:  # an object that cannot be hashed was never named
            named = None
        if named is not None:
            return named
        if isinstance(function, partial):
            inner = self._stand_in(function.func)
            return None if inner is None else partial(inner, *function.args, **function.keywords)
        if inspect.ismethod(function):
            inner = self._stand_in(function.__func__)
            return None if inner is None else partial(inner, function.__self__)
        return None

    def _refuse_real(self, function: Any) -> None:
        """What a test has replaced must not be called for real after all, by a way that nobody sees."""
        while isinstance(function, partial):
            function = function.func
        for named in self._replaced:
            called = _name(named)
            if called is not None and called == _name(function):
                raise UsageError(
                    f"replace: the step calls another {called} than the one that is replaced: name this one "
                    "too; for the method of any object, name it by its class"
                )
            if any(one is named for one in _mentioned(function)):
                raise UsageError(
                    f"replace: {called or repr(named)} is called by {_name(function) or 'a lambda'}, "
                    "where it cannot be replaced: give it to the step itself, or replace what the step gets"
                )


def _name(function: Any) -> str | None:
    name = getattr(function, "__qualname__", None)
    return None if name is None or name.endswith("<lambda>") else f"{function.__module__}.{name}"


def _mentioned(function: Any) -> Iterator[Any]:
    """What a function's own code names, in its module or around it."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    for name in _globals(function.__code__):
        yield function.__globals__.get(name)


@cache
def _globals(code: CodeType) -> tuple[str, ...]:
    # Not co_names: attributes are there too, and self.charge is no charge of the module.
    return tuple({one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"})


class Part:
    """A function in another's place: annotated like it, and async where it is."""

    def __init__(self, function: Any, other: Any, begun: Begun | None, claim: Claim) -> None:
        plain = inspect.isroutine(function) or inspect.isclass(function)
        # Named as in a partial: the engine looks there for annotations, and whether to await.
        self.func = function if plain else getattr(function, "func", None) or type(function).__call__
        self._other, self._begun, self._claim = other, begun, claim
        self.replaces = other is not function

    def play_plainly(self) -> None:
        """Annotated as before, and not async."""

        @wraps(self.func)
        def played(*args: Any) -> Any:
            return self._other(*args)

        self.func = played

    def __call__(self, *args: Any) -> Any:
        """Play it."""
        scope = SCOPE.get()
        if self._begun is not None and scope is not None:
            self._begun(self._claim, scope.key)
        answer = self._other(*args)
        if inspect.iscoroutinefunction(self.func) and not inspect.isawaitable(answer):
            return _answered(answer)
        return answer


async def _answered(answer: Any) -> Any:
    return answer


def taken_over(known: Defined, parts: Parts) -> Defined:
    """The same workflow, whose steps call whom `parts` name; the same plan, whose handlers are such."""
    return _plan(known, parts) if isinstance(known, Plan) else _workflow(cast("Workflow", known), parts)


def _plan(plan: Plan, parts: Parts) -> Plan:
    other = copy.copy(plan)
    other.handlers = {name: _handler(one, parts) for name, one in plan.handlers.items()}
    return other


def _handler(handler: Handler, parts: Parts) -> Handler:
    """Each call is an execution and a step: a plan has no body around them."""

    def performed(task: PlanTask) -> Any:
        execution = task._run  # noqa: SLF001 - of our own engine
        parts.enter(execution)
        token = SCOPE.set(Scope(task.name))
        try:
            return parts.of(handler.function, execution)(task)
        finally:
            SCOPE.reset(token)

    async def awaited(task: PlanTask) -> Any:
        return await performed(task)

    return replace(handler, function=awaited if handler.is_async else performed)


def _workflow(workflow: Workflow, parts: Parts) -> Workflow:
    function = workflow.function

    def performed(ctx: Any, *params: Any) -> Any:
        parts.enter(_execution(ctx))
        return function(_understudy(ctx, parts), *params)

    other = copy.copy(workflow)
    other.function = performed
    return other


def _understudy(ctx: Any, parts: Parts) -> Any:
    kind: Any = type(ctx)
    other = object.__new__(_class(kind))
    for name in kind.__slots__:
        setattr(other, name, getattr(ctx, name))
    other._parts = parts
    return other


@cache
def _class(kind: Any) -> Any:
    class Understudy(kind):  # type: ignore[misc]
        """The context that is given, but for whom its steps call."""

        __slots__ = ("_parts",)

        def step(self, name: str, fn: Any, *args: Any, **options: Any) -> Any:
            return super().step(name, self._parts.of(fn, _execution(self)), *args, **options)

        def map(self, name: str, fn: Any, *args: Any, **options: Any) -> Any:
            return super().map(name, self._parts.of(fn, _execution(self)), *args, **options)

        def transaction(self, fn: Any, *args: Any, **options: Any) -> Any:
            if options.get("name") is None:
                options["name"] = transaction_name(fn, None)
            execution = _execution(self)
            part = self._parts.of(fn, execution)
            if isinstance(part, Part) and part.replaces and not execution.worker.store.traits.awaits_work:
                # Of an engine that is not here; and what is awaited there is plain on this store.
                options.pop("on", None)
                part.play_plainly()
            return super().transaction(part, *args, **options)

    return Understudy


def _execution(ctx: Any) -> Any:
    """Behind the context of a plain workflow stands an ordinary one."""
    return ctx._run if hasattr(ctx, "_run") else ctx._context._run  # noqa: SLF001 - of our own engine
