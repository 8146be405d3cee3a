"""Values that cannot be read.

A value in a store may be no JSON, nested thousands of levels deep, or of another shape than its field. A
reader shows such a value as `unreadable`, with the reason, and goes on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.decoding import decoded
from holdfast.errors import BadValue

from .units import Json
from .written import Error

UNREADABLE = "unreadable"
MARK = f"holdfast.{UNREADABLE}"  # in JSON for machines: {"holdfast.unreadable": reason}
_REASON_MAX = 100
_TROUBLE = (msgspec.DecodeError, RecursionError, ValueError)  # a UnicodeError is a ValueError


class Unreadable(msgspec.Struct, frozen=True):
    """Stands in the place of a value that cannot be read."""

    reason: str

    def __str__(self) -> str:
        """`unreadable (nested too deep)`."""
        return f"{UNREADABLE} ({self.reason})"

    @property
    def data(self) -> dict[str, Any]:
        """The same as JSON for machines has it."""
        return {MARK: self.reason}


def read(text: Json | bytes, type_: Any = Any) -> Any:
    """The value that a JSON text holds, of this type; an `Unreadable` where there is none."""
    try:
        return decoded(text, type_)
    except _TROUBLE as error:
        return Unreadable(_reason(error))


def value(text: Json, what: str) -> Any:
    """The value that a JSON text holds; BadValue where it holds none."""
    found = read(text)
    if isinstance(found, Unreadable):
        raise BadValue(f"{what} cannot be read: {found.reason}")
    return found


def raw(text: Json) -> msgspec.Raw | Unreadable:
    """A JSON text as it is stored, in one line, for a document that it becomes a part of."""
    try:
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except _TROUBLE as error:
        return Unreadable(_reason(error))


def read_object(text: Json | bytes | None) -> dict[str, Any]:
    """The object that a JSON text holds; one with the reason alone where it holds none."""
    found = read(text or "{}")
    if isinstance(found, Unreadable):
        return found.data
    return found if isinstance(found, dict) else Unreadable("no object").data


def read_error(text: Json | bytes) -> Error:
    """The error that a JSON text holds; one of kind `unreadable` where it holds none."""
    found = read(text, Error)
    return Error(kind=UNREADABLE, message=found.reason) if isinstance(found, Unreadable) else found


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, msgspec.ValidationError):
        return str(error)[:_REASON_MAX]  # another shape, and where
    return "not JSON"
