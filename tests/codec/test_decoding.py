"""The two decoders: both give the same values, and the time depends only on the length of the text."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast import decoding
from holdfast.bounds import VALUE_BYTES
from holdfast.codec import Codec, parse, untyped
from holdfast.errors import BadValue
from holdfast.records.unreadable import read
from tests.laws.effort import longer

SLOW = ",".join(["9e307"] * 1000)


class Size(IntEnum):
    S = 1


class Name(Enum):
    ONE = "one"


class Tagged(msgspec.Struct, tag=True):
    a: float
    b: bytes = b""


@dataclass
class Line:
    sku: str
    at: datetime | None = None


class Point(NamedTuple):
    x: int
    y: float


class Keyed(TypedDict, total=False):
    a: int


class Model:
    """A class that looks like a pydantic model."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.data == self.data

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def model_validate(cls, data: Any) -> Model:
        return cls(data)

    def model_dump(self, mode: str) -> Any:
        return self.data


TYPED = [
    (bytes, b"\0\xff"),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (date, date(2026, 1, 2)),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.20")),
    (Size, Size.S),
    (Name, Name.ONE),
    (Tagged, Tagged(1.0, b"x")),
    (Tagged | int, 5),
    (Line, Line("a", datetime(2026, 1, 2, tzinfo=UTC))),
    (Point, Point(1, 2.0)),
    (Keyed, {"a": 1, "more": [1.5]}),
    (tuple[int, ...], (1, 2)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset("a")),
    (dict[int, float], {1: 2.0, -3: 0.5}),
    (dict[float, int], {1.5: 1}),
    (dict[UUID, date], {UUID(int=1): date(2026, 1, 1)}),
    (dict[Size, int], {Size.S: 1}),
    (Literal["a", 2], "a"),
    (int, 2**80),
    (int | None, None),
    (Model, Model({"a": [1.0, 2]})),
]


@pytest.fixture
def converting(monkeypatch):
    """Treat every text as one with many slow numbers."""
    monkeypatch.setattr(decoding, "slow", lambda _: True)


@pytest.mark.parametrize(("wanted", "value"), TYPED, ids=[str(n) for n in range(len(TYPED))])
def test_types_decode_the_same_both_ways(wanted, value, converting):
    codec = Codec(wanted)
    text, back = codec.record(value, "a value")
    assert (back, type(back)) == (value, type(value))
    assert codec.decode(text, "a value") == value


def test_a_value_with_many_slow_numbers_is_converted_to_its_type():
    text = f'{{"3":[{SLOW}],"4":[1,1.0]}}'
    back = Codec(dict[int, list[float]]).decode(text, "a value")
    assert back == {3: [9e307] * 1000, 4: [1.0, 1.0]}
    keyed = Codec(Keyed).decode(f'{{"a":1,"more":[{SLOW}]}}', "a value")
    assert keyed == {"a": 1, "more": [9e307] * 1000}


def test_digits_of_a_decimal_are_kept_beside_slow_numbers():
    back = Codec(tuple[Decimal, list[Decimal]]).decode(f"[1.10,[{SLOW}]]", "a value")
    assert str(back[0]) == "1.10"


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=12,
    )
)
@example([-0.0, 0.0, 1.0, -1, 10**30, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308])
def test_untyped_data_decodes_the_same_both_ways(value):
    text = json.dumps([value, "x"])
    found = [repr(_outcome(way, text.encode())) for way in (msgspec.json.decode, decoding._loaded)]
    assert found[0] == found[1]


def _outcome(way: Any, text: bytes) -> Any:
    try:
        return way(text)
    except (msgspec.DecodeError, UnicodeError):
        return "refused"


@pytest.mark.parametrize(
    "part",
    ["1e400", "-1e400", "NaN", "Infinity", "-Infinity", '"\\ud800"', '{"\\ud800":1}', "01", "1.",
     "[1,]", '"\t"', "1" * 4301, "\x00"],
)  # fmt: skip
def test_the_same_texts_are_refused_beside_slow_numbers(part):
    for text in (f"[{part}]", f"[{part},{SLOW}]"):
        for way in (untyped.decode, parse):
            with pytest.raises(BadValue, match="the value"):
                way(text, "the value")
        assert read(text).reason
    with pytest.raises(BadValue, match="is not UTF-8"):
        untyped.decode(f"[{SLOW}".encode() + b',"\xff"]', "the value")


def test_nesting_and_repeated_keys_are_seen_beside_slow_numbers():
    for levels in (100, 100_000):
        with pytest.raises(BadValue, match="nested deeper than"):
            untyped.decode(f"[{SLOW},{'[' * levels}{']' * levels}]", "the value")
    with pytest.raises(BadValue, match="'a' twice"):
        parse(f'[{SLOW},{{"a":1,"a":2}}]', "the value")


def test_signs_and_whole_floats_are_kept_beside_slow_numbers():
    back = untyped.decode(f"[-0.0,1.0,1,-0,{10**30},1e-400,{SLOW}]", "the value")
    assert repr(back[:6]) == f"[-0.0, 1.0, 1, 0, {10**30}, 0.0]"
    assert math.copysign(1, back[0]) == -1


@pytest.mark.slow
@pytest.mark.parametrize(
    "one",
    ["9e307", "1e-323", "0.30000000000000004", "99497856741060802525e-90", '{"a":9e307}',
     *longer("1e300", "1E+300", "-1.7976931348623157e308", "1e23", "1")],
)  # fmt: skip
def test_the_time_of_a_large_value_is_bounded(one):
    text = "[" + ",".join([one] * (VALUE_BYTES // (len(one) + 1) - 2)) + "]"
    for way in (untyped.decode, lambda text, _: read(text)):
        began = time.process_time()
        value = way(text, "a value")
        assert time.process_time() - began < 2.5  # 0.5 s on a free core; 8 s with msgspec's decoder alone
        assert len(value) > 1000
