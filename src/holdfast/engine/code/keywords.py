"""Keywords of `ctx.step`: which are options of the step, and which are arguments of its function.

A name that is both is refused, unless the function has that argument already: by position, or in a partial.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from holdfast.clipped import clipped
from holdfast.engine.options import STEP_OPTIONS
from holdfast.errors import UsageError

_OPTIONS = frozenset(STEP_OPTIONS)
_ANY = "**"  # stands for every name: the function takes any keyword, or its signature cannot be read

# bounded: functions that are made anew in each call would fill the table for ever
HARMLESS_MAX = 10_000

_harmless: set[object] = set()  # functions without a parameter that is named like an option


def check_options(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], values: tuple[object, ...]
) -> None:
    """Refuse options that may be meant for the function. `values`: of all options; None: not given."""
    inner: Any = fn
    while isinstance(inner, partial):
        inner = inner.func
    inner = inner.__func__ if type(inner) is MethodType else inner
    if type(inner) is FunctionType and (inner in _harmless or _is_harmless(inner)):
        return
    left = _left(fn, args)
    for option, value in zip(STEP_OPTIONS, values, strict=True):
        if value is not None and option in left:
            called = _name(fn)
            raise UsageError(
                f"step {clipped(name)}: {option}= is an option of ctx.step and an argument of {called}: give "
                f"the argument by position, or in partial({called}, {option}=…); "
                f"what stands beside it is the option"
            )


def _is_harmless(function: FunctionType) -> bool:
    code = inspect.unwrap(function).__code__ if hasattr(function, "__wrapped__") else function.__code__
    if not _OPTIONS.isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        return False
    if "<locals>" not in function.__qualname__ and len(_harmless) < HARMLESS_MAX:
        _harmless.add(function)
    return True


def check_arguments(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Refuse keywords that the function does not take: its call would fail, and be retried."""
    left = _left(fn, args)
    if _ANY in left:
        return
    for keyword in kwargs:
        if keyword not in left:
            raise UsageError(
                f"step {clipped(name)}: {clipped(keyword)} is no argument of {_name(fn)} that is left to "
                f"give, and no option of ctx.step; its options: {', '.join(STEP_OPTIONS)}"
            )


def _left(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, None]:
    """Return the names of the parameters that are still to be given, and can be given by name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return {_ANY: None}
    left: dict[str, None] = {}
    given = len(args)
    bound = fn.keywords if isinstance(fn, partial) else ()
    for one in parameters:
        if one.kind is one.VAR_KEYWORD:
            left[_ANY] = None
        elif one.kind is one.KEYWORD_ONLY:
            if one.name not in bound:
                left[one.name] = None
        elif one.kind is one.VAR_POSITIONAL:
            given = 0
        elif given:
            given -= 1
        elif one.kind is one.POSITIONAL_OR_KEYWORD:
            left[one.name] = None
    return left


def _name(fn: Callable[..., Any]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__
