"""Plain values in records: no subclass of `str` or `int`, text that can be stored, and JSON that is JSON.

Drivers take a subclass differently: one refuses Markup with an error of its own, another keeps it. The
engine makes plain values of them, and every store refuses those that are left. Databases differ in the same
way in what they take as text and as JSON: so that all stores refuse alike, both are looked at here.
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

_WORDS = (*vars(lifecycle).values(), *vars(records).values(), *vars(records.moves).values())
_OURS = [one for one in _WORDS if isinstance(one, type) and issubclass(one, Enum)]
_RECORDS = frozenset(one for one in _WORDS if isinstance(one, type) and issubclass(one, msgspec.Struct))
EXACT = frozenset({str, int, float, bool, bytes, NoneType, UUID, datetime, tuple, list, dict, *_OURS})
_FINE = EXACT | _RECORDS  # the fields of a record in a record are looked at on their own
_TEXT, _JSON = {"str", "Tenant"}, {"Json"}  # words of an annotation

Places = tuple[list[tuple[int, str, bool]], list[tuple[int, str]]]
_PLACES: dict[Any, Places] = {}  # by class of record


def check_exact(what: str, value: Any) -> None:
    """A text or a whole number of its plain type, and a text that can be stored; no other values."""
    kind = type(value)
    if kind is str:
        check_storable(what, value)
    elif kind not in EXACT and isinstance(value, str | int):
        plain = "str" if isinstance(value, str) else "int"
        raise UsageError(f"{what} {clipped(value)} is of type {kind.__name__[:60]}: give a plain {plain}")


def check_argument(what: str, value: Any) -> None:
    """The argument of a verb, and texts that it is a list of."""
    check_exact(what, value)
    if type(value) in {tuple, list}:
        for one in value:
            if type(one) is str:
                check_storable(what, one)


def check_fields(record: Any) -> None:
    """All fields of a record, and the texts of its tuples."""
    values = msgspec.structs.astuple(record)
    texts, tuples = _PLACES.get(type(record)) or _places(type(record))
    if not _FINE.issuperset(map(type, values)):
        for name, value in zip(record.__struct_fields__, values, strict=True):
            if type(value) is not str:
                check_exact(name, value)
    for place, name in tuples:
        value = values[place]
        if value and type(value) is tuple and not _RECORDS.issuperset(map(type, value)):
            for one in value:
                check_exact(name, one)
    for place, name, is_json in texts:
        value = values[place]
        if type(value) is str:
            if is_json:
                check_json(name, value)
            else:
                check_storable(name, value)


def _places(kind: Any) -> Places:
    """The fields of a record that hold text: place, name, and whether that is JSON; and those that hold
    tuples.
    """
    said = {name: set(text.split(" | ")) for name, text in kind.__annotations__.items()}
    fields = list(enumerate(kind.__struct_fields__))
    texts = [
        (place, name, bool(said[name] & _JSON)) for place, name in fields if said[name] & (_TEXT | _JSON)
    ]
    _PLACES[kind] = texts, [(place, name) for place, name in fields if "tuple[" in kind.__annotations__[name]]
    return _PLACES[kind]


def check_nested(record: Any) -> None:
    """All fields of a record, and of the records in it."""
    check_fields(record)
    for value in msgspec.structs.astuple(record):
        for one in value if type(value) is tuple else (value,):
            if isinstance(one, msgspec.Struct):
                check_nested(one)


def check_storable(what: str, text: str) -> None:
    """A text without NUL and without half of a surrogate pair: Postgres takes neither."""
    if not _is_storable(text):
        said = "text without NUL and without half of a surrogate pair, which no store can keep"
        raise UsageError(f"{what} {clipped(text)}: {said}")


def _is_storable(text: str) -> bool:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return "\0" not in text


def check_json(what: str, text: str) -> None:
    """A value that is JSON text."""
    if (why := fault(text)) is not None:
        raise UsageError(f"{what} {clipped(text)} is no JSON: {why}")
