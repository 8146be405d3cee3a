"""What functions of workflows and plans take and return, checked where they are defined, in one line each.

A wrong signature would be found by the first run otherwise, and an annotation that no JSON can be read as by
its last line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, UnionType
from typing import Any, TypeVar, Union, get_origin

from holdfast.clipped import clipped
from holdfast.codec import unreadable_class, unreadable_type
from holdfast.errors import UsageError

OURS = frozenset({"Context", "PlainContext", "PlanTask"})  # what functions are given

EXAMPLE = "as in `async def order(ctx, order: Order)`"


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await: an async function, a partial or an object of one."""
    inner = getattr(function, "func", None) or type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)


def parameters(what: str, function: Any) -> list[inspect.Parameter]:
    """The parameters of a function; UsageError for anything that is none, or cannot be called once."""
    if not callable(function):
        raise UsageError(f"{what} is no function: {clipped(function)}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{what} is a generator: write `return`, not `yield`")
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(f"{what} does not say what it takes: wrap it in a `def`") from None


def check_workflow(type_: str, function: Any, hints: dict[str, Any]) -> bool:
    """Refuse a function that could not be executed as a workflow; whether it takes a value."""
    what = f"workflow {type_}: its function"
    names = parameters(what, function)
    kinds = [one.kind for one in names]
    loose = inspect.Parameter.VAR_KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds
    if not 1 <= len(names) <= 2 or inspect.Parameter.KEYWORD_ONLY in kinds or loose:
        raise UsageError(
            f"workflow {type_}: it takes the context and at most one value, "
            f"as in `def order(ctx, order: Order)`, plain or async"
        )
    if _is_method(function, names[0]):
        raise UsageError(
            f"{what} is a method, whose `{names[0].name}` would be the context: take a function, {EXAMPLE}"
        )
    given = [_ours(one, hints) for one in names]
    if any(given[1:]):
        raise UsageError(f"{what} takes {given[1]} second: the context comes first, {EXAMPLE}")
    wanted = "Context" if is_async(function) else "PlainContext"
    if given[0] is not None and given[0] != wanted:
        how = "`async def`" if wanted == "Context" else "`def`"
        decorated = "; a decorator around an async function is async too" if wanted != "Context" else ""
        raise UsageError(f"{what} says ctx: {given[0]}, but {how} is given hf.{wanted}{decorated}")
    return len(names) == 2


def check_handler(what: str, function: Any, hints: dict[str, Any]) -> None:
    """Refuse a function that could not be the handler of a plan's task."""
    names = parameters(what, function)
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise UsageError(
            f"{what} takes one argument, as in `def ship(task)`: task.params is what the run was started with"
        ) from None
    given = _ours(names[0], hints) if names else None
    if given not in {None, "PlanTask"}:
        raise UsageError(f"{what} says {names[0].name}: {given}, but it is given hf.PlanTask")


def check_annotation(what: str, wanted: Any, *, result: bool = False) -> None:
    """Refuse an annotation that values cannot be read as.

    An annotation that says nothing is let pass: a TypeVar; of a result also NoReturn and its like.
    """
    if isinstance(wanted, TypeVar):
        return
    found = unreadable_class(wanted)
    if found is None and (not result or get_origin(wanted) in {Union, UnionType}):
        found = unreadable_type(wanted)
    if found is not None:
        raise UsageError(
            f"{what} is annotated with {found}, which JSON cannot be read as: take a dataclass, a msgspec "
            f"Struct or a pydantic model, or say what it is in JSON, such as dict"
        )


def _is_method(function: Any, first: inspect.Parameter) -> bool:
    if not isinstance(function, FunctionType) or first.name not in {"self", "cls"}:
        return False
    where = function.__qualname__.rpartition(".")[0]
    return bool(where) and not where.endswith("<locals>")


def _ours(parameter: inspect.Parameter, hints: dict[str, Any]) -> str | None:
    """Which of ours a parameter is annotated as. Only of an annotation that is not resolved the name decides:
    a class of somebody's own may be called Context too."""
    said = hints.get(parameter.name, parameter.annotation)
    if isinstance(said, str):
        name = said.rpartition(".")[2]
    else:
        ours = getattr(said, "__module__", "").startswith("holdfast.")
        name = getattr(said, "__name__", "") if ours else ""
    return name if name in OURS else None
