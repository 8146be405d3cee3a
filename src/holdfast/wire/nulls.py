"""Null in an optional field means that the field was left out.

Records have no null for most of their fields. Few workers send any, so a body is read again, without them,
only when it was refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Raw

from .values import Value

_NULL = b"null"


def read(text: bytes | Raw, wanted: Any) -> Any:
    """Return the record of a text; msgspec.ValidationError when it does not fit."""
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.ValidationError:
        if _NULL not in bytes(text):
            raise
    return msgspec.json.decode(without_nulls(text, wanted), type=wanted)


def without_nulls(text: bytes | Raw, wanted: type) -> bytes:
    """Return the text of a record without the fields that are null and have a default, at every level.

    Values of users stay as they are.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.ValidationError:
        return bytes(text)  # no object: the caller's next try says so
    known, kept = _known(wanted), dict[str, Raw]()
    for name, value in fields.items():
        is_optional, inner = known.get(name, (False, None))
        if not (is_optional and bytes(value) == _NULL):
            kept[name] = value if inner is None else Raw(_inside(value, inner))
    return msgspec.json.encode(kept)


def _inside(value: Raw, wanted: type) -> bytes:
    """Return a record, or a list of records, without its nulls."""
    if not bytes(value).startswith(b"["):
        return without_nulls(value, wanted)
    listed = msgspec.json.decode(value, type=list[Raw])
    return msgspec.json.encode([Raw(without_nulls(one, wanted)) for one in listed])


@cache
def _known(wanted: type) -> dict[str, tuple[bool, Any]]:
    """Return for each field of a record whether it may be left out, and the record inside it, if any. A value
    of a user may not: there null is a value.
    """
    hints = get_type_hints(wanted)
    return {
        one.name: (not one.required and hints[one.name] != Value, _record_in(hints[one.name]))
        for one in msgspec.structs.fields(wanted)
    }


def _record_in(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for one in get_args(hint) if (found := _record_in(one)) is not None), None)
