"""Checks of the signatures of workflow functions and plan handlers, at their definition.

Otherwise the first run would find a wrong signature, and only its end an annotation that no JSON can be read
as.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, UnionType
from typing import Any, TypeVar, Union, get_origin

from holdfast.clipped import clipped
from holdfast.codec import unreadable_class, unreadable_type
from holdfast.errors import UsageError

OURS = frozenset({"Context", "SyncContext", "PlanTask"})  # the first arguments of functions
CONTEXTS = frozenset({"Context", "SyncContext"})

EXAMPLE = "as in `async def order(ctx, order: Order)`"


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for an async function, and for a partial or a callable object of one."""
    inner = getattr(function, "func", None) or type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)


def parameters(what: str, function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function; UsageError for a generator and for a value that is no function."""
    if not callable(function):
        raise UsageError(f"{what} is not a function: {clipped(function)}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what} is a generator: write `return`, not `yield`")
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(f"{what} has no readable signature: wrap it in a `def`") from None


def check_workflow(type_: str, function: Any, hints: dict[str, Any]) -> bool:
    """Refuse a function that cannot be executed as a workflow; return whether it takes a value."""
    what = f"workflow {type_}: its function"
    names = parameters(what, function)
    kinds = [one.kind for one in names]
    loose = inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds
    if not 1 <= len(names) <= 2 or inspect.Parameter.KEYWORD_ONLY in kinds or loose:
        raise UsageError(
            f"workflow {type_}: it takes the context and at most one value, "
            f"as in `def order(ctx, order: Order)`, sync or async"
        )
    if _is_method(function, names[0]):
        raise UsageError(
            f"{what} is a method, and its `{names[0].name}` would be the context: use a function, {EXAMPLE}"
        )
    given = [_ours(one, hints) for one in names]
    if any(given[1:]):
        raise UsageError(f"{what} takes {given[1]} second: the context comes first, {EXAMPLE}")
    wanted = "Context" if is_async(function) else "SyncContext"
    if given[0] is not None and given[0] != wanted:
        how = "an `async def`" if wanted == "Context" else "a `def`"
        other = "make it `async def`" if wanted == "SyncContext" else "make it a `def`"
        mend = f"write `{names[0].name}: hf.{wanted}`" + (f", or {other}" if given[0] in CONTEXTS else "")
        decorated = " (a decorator around an async function is async too)" if wanted != "Context" else ""
        raise UsageError(
            f"{what} has the annotation {names[0].name}: {given[0]}, but it is {how}: {mend}{decorated}"
        )
    return len(names) == 2


def check_handler(what: str, function: Any, hints: dict[str, Any]) -> None:
    """Refuse a function that cannot be the handler of a plan's task."""
    names = parameters(what, function)
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise UsageError(
            f"{what} takes one argument, as in `def ship(task)`; task.params has the params of the run"
        ) from None
    given = _ours(names[0], hints) if names else None
    if given not in {None, "PlanTask"}:
        raise UsageError(f"{what} has the annotation {names[0].name}: {given}, but it gets hf.PlanTask")


def check_annotation(what: str, wanted: Any, *, result: bool = False) -> None:
    """Refuse an annotation that values cannot be read as.

    Annotations without information are allowed: a TypeVar; for a result also NoReturn and the like.
    """
    if isinstance(wanted, TypeVar):
        return
    found = unreadable_class(wanted)
    if found is None and (not result or get_origin(wanted) in {Union, UnionType}):
        found = unreadable_type(wanted)
    if found is not None:
        raise UsageError(
            f"{what} has the annotation {found}, which cannot be made from JSON: use a dataclass, a msgspec "
            f"Struct or a pydantic model, or a type of JSON such as dict"
        )


def _is_method(function: Any, first: inspect.Parameter) -> bool:
    if not isinstance(function, FunctionType) or first.name not in {"self", "cls"}:
        return False
    where = function.__qualname__.rpartition(".")[0]
    return bool(where) and not where.endswith("<locals>")


def _ours(parameter: inspect.Parameter, hints: dict[str, Any]) -> str | None:
    """Return the name of our class that a parameter is annotated with, if any. The name alone decides only
    for an unresolved annotation: a class of users may be called Context too."""
    said = hints.get(parameter.name, parameter.annotation)
    if isinstance(said, str):
        name = said.rpartition(".")[2]
    else:
        ours = getattr(said, "__module__", "").startswith("holdfast.")
        name = getattr(said, "__name__", "") if ours else ""
    return name if name in OURS else None
