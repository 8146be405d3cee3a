"""Replacements: functions of a test that replace the functions which steps call; and a note of every call.

The engine is not changed. A workflow gets a context whose `step`, `map` and `transaction` pass on the
replacement. Its results are recorded as those of the replaced function.
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

from holdfast.engine.code.scope import SCOPE, Scope
from holdfast.engine.code.transactions import transaction_name
from holdfast.engine.definitions import Defined, Workflow
from holdfast.engine.plans.plan import Handler, Plan
from holdfast.engine.plans.task import PlanTask
from holdfast.errors import UsageError
from holdfast.records import Claim

# Called with the claim and the key of a step that begins; "" for the body.
Begun = Callable[[Claim, str], None]


class Replacements:
    """The replacements of a rehearsal, by the function that each one replaces."""

    def __init__(self, replaced: Mapping[Any, Any] | None = None, begun: Begun | None = None) -> None:
        self._replaced: dict[Any, Any] = {}
        self._begun = begun
        for function, other in (replaced or {}).items():
            self.replace(function, other)

    def replace(self, function: Callable[..., Any], other: Callable[..., Any]) -> None:
        """Let steps call `other` from now on where they would call `function`."""
        for given in (function, other):
            if not callable(given):
                raise UsageError(f"replace: {given!r} cannot be called: give two functions")
        self._replaced[function] = other

    def enter(self, execution: Any) -> None:
        """Note that the body of a workflow begins."""
        if self._begun is not None:
            self._begun(execution.claim, "")

    def of(self, function: Any, execution: Any) -> Any:
        """Return the function that a step has to call."""
        if isinstance(function, Replacement) or not callable(function):
            return function
        other = self._stand_in(function)
        if other is None:
            if self._replaced:
                self._refuse_real(function)
            if self._begun is None:
                return function
        return Replacement(function, function if other is None else other, self._begun, execution.claim)

    def _stand_in(self, function: Any) -> Any:
        """Return the replacement of a function, also behind a partial or a method; None if there is none."""
        try:
            named = self._replaced.get(function)
        except TypeError:  # an object that cannot be hashed cannot be a key of `replace`
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
        """Raise UsageError when a replaced function would be called for real, unseen by the rehearsal."""
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
    """Return the objects that a function's own code names: closure variables and globals."""
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
    # Not co_names: it has attributes too, and `self.charge` is not the global `charge`.
    return tuple({one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"})


class Replacement:
    """A function in place of another one, with the same annotations, and async when that one is."""

    def __init__(self, function: Any, other: Any, begun: Begun | None, claim: Claim) -> None:
        direct = inspect.isroutine(function) or inspect.isclass(function)
        # Named `func` as in a partial: the engine looks there for annotations, and whether to await.
        self.func = function if direct else getattr(function, "func", None) or type(function).__call__
        self._other, self._begun, self._claim = other, begun, claim
        self.replaces = other is not function

    def make_sync(self) -> None:
        """Make it sync; the annotations stay."""

        @wraps(self.func)
        def sync(*args: Any, **kwargs: Any) -> Any:
            return self._other(*args, **kwargs)

        self.func = sync

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the replacement, and note that the step begins."""
        scope = SCOPE.get()
        if self._begun is not None and scope is not None:
            self._begun(self._claim, scope.key)
        answer = self._other(*args, **kwargs)
        if inspect.iscoroutinefunction(self.func) and not inspect.isawaitable(answer):
            return _answered(answer)
        return answer


async def _answered(answer: Any) -> Any:
    return answer


def with_replacements(known: Defined, replacements: Replacements) -> Defined:
    """Return a copy of a workflow or plan whose steps or handlers call the replacements."""
    return (
        _plan(known, replacements)
        if isinstance(known, Plan)
        else _workflow(cast("Workflow", known), replacements)
    )


def _plan(plan: Plan, replacements: Replacements) -> Plan:
    other = copy.copy(plan)
    other.handlers = {name: _handler(one, replacements) for name, one in plan.handlers.items()}
    return other


def _handler(handler: Handler, replacements: Replacements) -> Handler:
    """Return the handler with its replacement. Each call is an execution and a step: a plan has no body."""

    def performed(task: PlanTask) -> Any:
        execution = task._run  # noqa: SLF001 - of our own engine
        replacements.enter(execution)
        token = SCOPE.set(Scope(task.name))
        try:
            return replacements.of(handler.function, execution)(task)
        finally:
            SCOPE.reset(token)

    async def awaited(task: PlanTask) -> Any:
        return await performed(task)

    return replace(handler, function=awaited if handler.is_async else performed)


def _workflow(workflow: Workflow, replacements: Replacements) -> Workflow:
    function = workflow.function

    def performed(ctx: Any, *params: Any) -> Any:
        replacements.enter(_execution(ctx))
        return function(_replacing_context(ctx, replacements), *params)

    other = copy.copy(workflow)
    other.function = performed
    return other


def _replacing_context(ctx: Any, replacements: Replacements) -> Any:
    kind: Any = type(ctx)
    other = object.__new__(_class(kind))
    for name in kind.__slots__:
        setattr(other, name, getattr(ctx, name))
    other._replacements = replacements
    return other


@cache
def _class(kind: Any) -> Any:
    class ReplacingContext(kind):  # type: ignore[misc]
        """The given context, whose steps call the replacements."""

        __slots__ = ("_replacements",)

        def step(self, name: str, fn: Any, /, *args: Any, **options: Any) -> Any:
            return super().step(name, self._replacements.of(fn, _execution(self)), *args, **options)

        def map(self, name: str, fn: Any, *args: Any, **options: Any) -> Any:
            return super().map(name, self._replacements.of(fn, _execution(self)), *args, **options)

        def transaction(self, fn: Any, *args: Any, **options: Any) -> Any:
            if options.get("name") is None:
                options["name"] = transaction_name(fn, None)
            execution = _execution(self)
            replacement = self._replacements.of(fn, execution)
            if (
                isinstance(replacement, Replacement)
                and replacement.replaces
                and not execution.worker.store.traits.awaits_work
            ):
                # The transaction belongs to a database that is not there in the rehearsal, and an async
                # function cannot run in a transaction of this store.
                options.pop("on", None)
                replacement.make_sync()
            return super().transaction(replacement, *args, **options)

    return ReplacingContext


def _execution(ctx: Any) -> Any:
    """Return the execution of a context. The context of a sync workflow wraps an async one."""
    return ctx._run if hasattr(ctx, "_run") else ctx._context._run  # noqa: SLF001 - of our own engine
