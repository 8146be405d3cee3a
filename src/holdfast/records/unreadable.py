"""Values that cannot be read.

A value in a store may be invalid JSON, nested thousands of levels deep, or of another shape than its field. A
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
REDACTED = "redacted"  # in place of a value that the server does not show to this API key; it is no JSON
MARK = f"holdfast.{UNREADABLE}"  # in JSON for machines: {"holdfast.unreadable": reason}
_REASON_MAX = 100
_TROUBLE = (msgspec.DecodeError, RecursionError, ValueError)  # a UnicodeError is a ValueError


class Unreadable(msgspec.Struct, frozen=True):
    """Stands for a value that cannot be read."""

    reason: str

    def __str__(self) -> str:
        """`unreadable (nested too deep)`."""
        return f"{UNREADABLE} ({self.reason})"

    @property
    def data(self) -> dict[str, Any]:
        """Return the same as JSON for machines."""
        return {MARK: self.reason}


def read(text: Json | bytes, type_: Any = Any) -> Any:
    """Return the value of a JSON text, of this type; an `Unreadable` if it cannot be read."""
    try:
        return decoded(text, type_)
    except _TROUBLE as error:
        return Unreadable(_reason(error, text))


def value(text: Json, what: str) -> Any:
    """Return the value of a JSON text; BadValue if it cannot be read."""
    found = read(text)
    if isinstance(found, Unreadable):
        raise BadValue(f"{what} cannot be read: {found.reason}")
    return found


def raw(text: Json) -> msgspec.Raw | Unreadable:
    """Return a JSON text as it is stored, on one line, as part of a larger document."""
    try:
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except _TROUBLE as error:
        return Unreadable(_reason(error, text))


def read_object(text: Json | bytes | None) -> dict[str, Any]:
    """Return the object of a JSON text; an object with the reason alone if it cannot be read."""
    found = read(text or "{}")
    if isinstance(found, Unreadable):
        return found.data
    return found if isinstance(found, dict) else Unreadable("no object").data


def read_error(text: Json | bytes) -> Error:
    """Return the error of a JSON text; one of kind `unreadable` if it cannot be read."""
    found = read(text, Error)
    return Error(kind=UNREADABLE, message=found.reason) if isinstance(found, Unreadable) else found


def _reason(error: Exception, text: Json | bytes) -> str:
    if text == REDACTED:
        return "the API key lacks the scope payloads.read"
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, msgspec.ValidationError):
        return str(error)[:_REASON_MAX]  # the wrong part of the shape, and its path
    return "not JSON"
