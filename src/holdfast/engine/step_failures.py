"""The exceptions of failed steps: the same in the first execution and in every later one.

A failed step raises `StepFailed`, made from the recorded error. An exception whose class is named in
`raises=` is raised as itself, rebuilt from its recorded arguments; then the StepFailed is its cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from holdfast.clipped import clipped
from holdfast.codec import untyped
from holdfast.errors import StepFailed, UsageError, named
from holdfast.records import Error, Json

from .failures import stored

Raises = type[Exception] | Sequence[type[Exception]]

ARGUMENTS_MAX = 16_000  # characters of an exception's arguments as JSON; with more the step raises StepFailed
_NO_FIELDS = frozenset({"__dict__", "__weakref__"})


def check_raises(
    what: str, raises: Any, beside: Sequence[type[Exception]] = ()
) -> tuple[type[Exception], ...]:
    """Return the checked classes of `raises=` and those of the workflow (`beside`): exceptions with different
    names.
    """
    listed = raises if isinstance(raises, list | tuple | set | frozenset) else (raises,)
    for one in listed:
        if not isinstance(one, type) or not issubclass(one, Exception):
            raise UsageError(
                f"{what}: raises={clipped(one)}: give exception classes, as in raises=(CardDeclined,)"
            )
    classes = tuple(dict.fromkeys((*beside, *listed)))
    names = [one.__qualname__ for one in classes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        where = " with that of the workflow" if beside else ""
        raise UsageError(
            f"{what}: raises= names two classes {twice!r}{where}, which look the same in the record: "
            "rename one"
        )
    return classes


def arguments(error: BaseException, raises: Sequence[type[Exception]]) -> Json | None:
    """Return the arguments for rebuilding this exception, as JSON; None when the step raises StepFailed.

    The exception is rebuilt here once, and compared: an attribute that the arguments do not give would be
    lost.
    """
    if type(error) not in raises:
        return None
    try:
        text, back = untyped.record(list(_given(error)), "the arguments")
        made = type(error)(*back)
        same = type(made) is type(error) and made.args == error.args and _fields(made) == _fields(error)
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return None
    return text if same and len(text) <= ARGUMENTS_MAX else None


def failure(step: str, error: Json | None, raises: Sequence[type[Exception]]) -> Exception:
    """Return the exception that a failed step raises, from its recorded error."""
    found = stored(error) if error else Error(kind="exhausted")
    told = StepFailed(
        step, found.kind, found.message, found.type, said=named(found), traceback=found.traceback
    )
    told.attempt, told.max_attempts = found.attempt, found.max_attempts
    class_ = next((one for one in raises if one.__qualname__ == found.type), None)
    if class_ is None or found.args is None:
        return told
    try:
        made = class_(*untyped.decode(found.args, f"the arguments of {found.type}"))
    except Exception:  # noqa: BLE001 - as above; the class may have changed since
        return told
    if type(made) is not class_:
        return told
    told.raised_with = made.args
    BaseException.__setattr__(made, "__cause__", told)  # a frozen dataclass refuses `made.__cause__ = …`
    return made


def _given(error: BaseException) -> tuple[Any, ...]:
    """Return the arguments that the class was called with: `__reduce__` may give more than `args`."""
    reduced = error.__reduce__()
    if isinstance(reduced, tuple) and len(reduced) > 1 and reduced[0] is type(error):
        return tuple(reduced[1])
    return error.args


def _fields(error: BaseException) -> dict[str, Any]:
    """Return all attributes of an exception: in its dict, its slots, and in classes written in C (`name`)."""
    found = {name: value for name, value in vars(error).items() if name != "__notes__"}
    for class_ in type(error).__mro__:
        if class_ in {BaseException, object}:
            continue
        for name, one in vars(class_).items():
            if isinstance(one, MemberDescriptorType | GetSetDescriptorType) and name not in _NO_FIELDS:
                with suppress(AttributeError):  # an empty slot
                    found[f"{class_.__qualname__}.{name}"] = one.__get__(error)
    return found
