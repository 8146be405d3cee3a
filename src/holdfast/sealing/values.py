"""Types that carry users' values: JSON text that the store behind a codec must see only sealed."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints

from holdfast.records import Json


def carries_values(hint: Any) -> bool:
    """Return True when `Json` is somewhere inside this type. `Any` counts too."""
    return _carries(hint, set())


def _carries(hint: Any, seen: set[Any]) -> bool:
    if hint is Any or hint == Json:
        return True
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if isinstance(hint, list):  # the arguments of a function
        return any(_carries(one, seen) for one in hint)
    inside = get_args(hint)
    if isinstance(hint, type) and not inside and hint.__module__.partition(".")[0] != "builtins":
        if hint in seen:
            return False
        seen.add(hint)
        inside = tuple(get_type_hints(hint, include_extras=True).values())
    return any(_carries(one, seen) for one in inside)
