"""Plain values in records: no subclass of `str` or `int`.

Drivers take a subclass differently: one refuses Markup with an error of its own, another keeps it. The
engine makes plain values of them, and every store refuses those that are left.
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
from holdfast.errors import UsageError

_WORDS = (*vars(lifecycle).values(), *vars(records).values())
_OURS = [one for one in _WORDS if isinstance(one, type) and issubclass(one, Enum)]
EXACT = frozenset({str, int, float, bool, bytes, NoneType, UUID, datetime, tuple, list, dict, *_OURS})


def check_exact(what: str, value: Any) -> None:
    """A text or a whole number of its plain type; other values are not looked at."""
    kind = type(value)
    if kind not in EXACT and isinstance(value, str | int):
        plain = "str" if isinstance(value, str) else "int"
        raise UsageError(f"{what} {clipped(value)} is of type {kind.__name__[:60]}: give a plain {plain}")


def check_fields(record: Any) -> None:
    """All fields of a record, and the texts of its tuples."""
    values = msgspec.structs.astuple(record)
    if EXACT.issuperset(map(type, values)) and tuple not in map(type, values):
        return
    for name, value in zip(record.__struct_fields__, values, strict=True):
        if type(value) is tuple:
            for one in value:
                check_exact(name, one)
        else:
            check_exact(name, value)
