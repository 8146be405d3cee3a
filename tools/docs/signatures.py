"""Signatures as text. Types are shown as the code writes them, so that every Python gives the same page."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ForwardRef

LINE = 96
_LONG = 60
_UNPACK = re.compile(r"Unpack\[(\w+)\]")
_VARIANCE = re.compile(r"(?<=\b[A-Z])_(?:co|contra)\b")
_STARS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def value(default: object) -> str:
    """Return a default as it would be written in code; an ellipsis where that is long or has no words."""
    if isinstance(default, Enum) and repr(default).startswith("<"):
        return f"{type(default).__name__}.{default.name}"
    if inspect.isfunction(default) or inspect.isclass(default):
        return default.__name__
    if default is Any:
        return "Any"
    if isinstance(default, float) and default.is_integer():
        return f"{default:.1f}"
    written = repr(default)
    if "<" in written or len(written) > _LONG:
        return "…"
    return json.dumps(default, ensure_ascii=False) if isinstance(default, str) else written


def type_name(annotation: object) -> str:
    """Return a type as the code writes it."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _VARIANCE.sub("", written.replace("'", '"'))


def keywords(called: Callable[..., Any]) -> list[tuple[str, str, str]]:
    """Return the keyword-only parameters: name, type and default of each."""
    found = inspect.signature(called).parameters.values()
    return [
        (one.name, type_name(one.annotation), "" if one.default is one.empty else value(one.default))
        for one in found
        if one.kind is one.KEYWORD_ONLY
    ]


def _unpacked(parameter: inspect.Parameter, called: Callable[..., Any]) -> list[str]:
    """Return the keywords that `**options: Unpack[Options]` stands for, in the order of that class."""
    name = _UNPACK.fullmatch(str(parameter.annotation))
    options = getattr(called, "__globals__", {}).get(name[1]) if name else None
    types = getattr(options, "__annotations__", {})
    return [f"{key}: {type_name(annotation)} = …" for key, annotation in types.items()]


def _parameter(parameter: inspect.Parameter, types: Mapping[str, str]) -> str:
    stars = _STARS.get(parameter.kind, "")
    known = parameter.annotation is not parameter.empty or parameter.name in types
    type_ = types.get(parameter.name) or type_name(parameter.annotation)
    written = f"{stars}{parameter.name}" + (f": {type_}" if known else "")
    if parameter.default is parameter.empty:
        return written
    return f"{written} = {value(parameter.default)}" if known else f"{written}={value(parameter.default)}"


def _parameters(
    signature: inspect.Signature, types: Mapping[str, str], called: Callable[..., Any]
) -> list[str]:
    written: list[str] = []
    kinds = inspect.Parameter
    starred = False
    previous = None
    for parameter in signature.parameters.values():
        if previous is kinds.POSITIONAL_ONLY and parameter.kind is not kinds.POSITIONAL_ONLY:
            written.append("/")
        if parameter.kind is kinds.VAR_POSITIONAL:
            starred = True
        if parameter.kind is kinds.KEYWORD_ONLY and not starred:
            written.append("*")
            starred = True
        unpacked = _unpacked(parameter, called)
        if unpacked and not starred:
            written.append("*")
        written += unpacked or [_parameter(parameter, types)]
        previous = parameter.kind
    return written


def _fit(before: str, parameters: list[str], after: str) -> str:
    line = f"{before}({', '.join(parameters)}){after}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{before}(", *(f"    {parameter}," for parameter in parameters), f"){after}"])


def function(name: str, called: Callable[..., Any], decorator: str = "", *, bound: bool = True) -> str:
    """Return the signature of a function or method, without `self` and `cls`."""
    signature = inspect.signature(called)
    if bound and decorator != "staticmethod":
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    returns = signature.return_annotation
    after = "" if returns is signature.empty else f" -> {type_name(returns)}"
    is_async = inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
    before = "async def" if is_async else "def"
    written = _fit(f"{before} {name}", _parameters(signature, {}, called), after)
    return f"@{decorator}\n{written}" if decorator else written


def constructor(cls: type, types: Mapping[str, str]) -> str:
    """Return how the class is called; `types`: its fields, as the code writes them."""
    try:
        signature = inspect.signature(cls)
    except ValueError:  # an exception that takes what Exception takes
        return f"{cls.__name__}(*args)"
    return _fit(cls.__name__, _parameters(signature, types, cls), "")
