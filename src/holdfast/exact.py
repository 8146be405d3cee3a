"""Checks of the values in records: no subclass of `str` or `int`, text that can be stored, valid JSON.

Database drivers treat a subclass differently: one refuses Markup with its own error, another stores it. The
engine converts subclasses, and every store refuses the remaining ones. Databases also differ in the text and
the JSON that they accept. Both are checked here, so that all stores refuse the same values.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from holdfast import lifecycle, records
from holdfast.clipped import clipped
from holdfast.decoding import fault
from holdfast.errors import UsageError
from holdfast.records import transfer

_WORDS = (
    *vars(lifecycle).values(),
    *vars(records).values(),
    *vars(records.moves).values(),
    *vars(transfer).values(),
)
_OURS = [one for one in _WORDS if isinstance(one, type) and issubclass(one, Enum)]
_RECORDS = frozenset(one for one in _WORDS if isinstance(one, type) and issubclass(one, msgspec.Struct))
EXACT = frozenset({str, int, float, bool, bytes, NoneType, UUID, datetime, tuple, list, dict, *_OURS})
_FINE = EXACT | _RECORDS  # the fields of a record inside a record are checked separately
_TEXT, _JSON = {"str", "Tenant"}, {"Json"}  # words in the annotation of a field

# The fields of a record that hold text: JSON, and plain text; and the fields that hold tuples.
CheckedFields = tuple[list[tuple[int, str]], list[tuple[int, str]], list[tuple[int, str]]]
_CHECKED_FIELDS: dict[Any, CheckedFields] = {}  # by class of record


def check_exact(what: str, value: Any) -> None:
    """Check that a text or whole number is of its exact type, and that a text can be stored."""
    kind = type(value)
    if kind is str:
        check_storable(what, value)
    elif kind not in EXACT and isinstance(value, str | int):
        base = "str" if isinstance(value, str) else "int"
        raise UsageError(f"{what} {clipped(value)} is of type {kind.__name__[:60]}: give a plain {base}")


def check_argument(what: str, value: Any) -> None:
    """Check an argument of a verb, and the texts in it if it is a list."""
    check_exact(what, value)
    if type(value) in {tuple, list}:
        for one in value:
            if type(one) is str:
                check_storable(what, one)


def check_fields(record: Any) -> None:
    """Check all fields of a record, and the texts in its tuples."""
    values = msgspec.structs.astuple(record)
    texts, json_texts, tuples = _CHECKED_FIELDS.get(type(record)) or _checked_fields(type(record))
    if not _FINE.issuperset(map(type, values)):
        for name, value in zip(record.__struct_fields__, values, strict=True):
            if type(value) is not str:
                check_exact(name, value)
    for place, name in tuples:
        value = values[place]
        if value and type(value) is tuple and not _RECORDS.issuperset(map(type, value)):
            for one in value:
                check_exact(name, one)
    _check_texts([(name, value) for place, name in texts if type(value := values[place]) is str])
    for place, name in json_texts:
        if type(value := values[place]) is str:
            check_json(name, value)


def _check_texts(texts: list[tuple[str, str]]) -> None:
    """Check texts, by name. Almost all are plain words: then one look at all of them is enough."""
    said = "".join([text for _, text in texts])
    if not (said.isascii() and said.isprintable()):
        for name, text in texts:
            check_storable(name, text)


def _checked_fields(kind: Any) -> CheckedFields:
    """Return the fields of a record that hold text, JSON and tuples: their positions and names."""
    said = {name: set(text.split(" | ")) for name, text in kind.__annotations__.items()}
    fields = list(enumerate(kind.__struct_fields__))
    _CHECKED_FIELDS[kind] = (
        [(place, name) for place, name in fields if said[name] & _TEXT and not said[name] & _JSON],
        [(place, name) for place, name in fields if said[name] & _JSON],
        [(place, name) for place, name in fields if "tuple[" in kind.__annotations__[name]],
    )
    return _CHECKED_FIELDS[kind]


def check_nested(record: Any) -> None:
    """Check all fields of a record, and of the records inside it."""
    check_fields(record)
    for value in msgspec.structs.astuple(record):
        for one in value if type(value) is tuple else (value,):
            if isinstance(one, msgspec.Struct):
                check_nested(one)


def check_storable(what: str, text: str) -> None:
    """Check that a text has no NUL and no half of a surrogate pair: Postgres accepts neither."""
    if not (text.isascii() and text.isprintable()) and not _is_storable(text):
        said = "give text without NUL and without half of a surrogate pair; stores cannot keep these"
        raise UsageError(f"{what} {clipped(text)}: {said}")


def _is_storable(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return "\0" not in text


def check_json(what: str, text: str) -> None:
    """Check that a text is JSON."""
    if (why := fault(text)) is not None:
        raise UsageError(f"{what} {clipped(text)} is not JSON: {why}")
