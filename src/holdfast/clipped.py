"""Values in messages: cut, so that no value is too long to be named."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from reprlib import Repr
from uuid import UUID

CLIPPED_MAX = 60  # characters of a value in a message
_BITS_MAX = 256  # of a number that is still printed


class _Cut(Repr):
    """`repr` in bounded time and length. Instances of unknown classes show their class only."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 2, CLIPPED_MAX, CLIPPED_MAX

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return repr(x) if bits <= _BITS_MAX else f"<a whole number of {bits:,} bits>"

    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= CLIPPED_MAX else f"{x[:CLIPPED_MAX]!r}…"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= CLIPPED_MAX else f"{x[:CLIPPED_MAX]!r}…"

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        if level <= 0:
            return "{…}"
        pairs = [
            f"{self.repr1(k, level - 1)}: {self.repr1(x[k], level - 1)}" for k in islice(x, self.maxdict)
        ]
        return f"{{{', '.join(pairs)}{', …' if len(x) > self.maxdict else ''}}}"

    def repr_set(self, x: set[object], level: int) -> str:
        return f"<a set of {len(x):,}>"

    def repr_frozenset(self, x: frozenset[object], level: int) -> str:
        return f"<a set of {len(x):,}>"

    def repr_instance(self, x: object, level: int) -> str:
        if x is None or isinstance(x, float | bool | UUID | datetime | timedelta | type):
            return repr(x)
        if isinstance(x, Decimal):
            return str(x)[:CLIPPED_MAX]
        return f"<{type(x).__qualname__}>"


_cut = _Cut()


def clipped(value: object) -> str:
    """The `repr` of a value, cut: its cost does not grow with the value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _cut.repr_int(value, 0)
    if isinstance(value, str):
        return _cut.repr_str(value, 0)
    string = _cut.repr(value)
    return string if len(string) <= 4 * CLIPPED_MAX else f"{string[: 4 * CLIPPED_MAX]}…"
