"""Typed values: they come back as the annotated type, and other values are refused."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import Codec, annotated, result_codec
from holdfast.errors import BadValue


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    S = 1
    L = 3


class Line(msgspec.Struct):
    sku: str
    price: Decimal
    size: Size = Size.S


class Tagged(msgspec.Struct, tag=True):
    n: int


@dataclass
class Order:
    id: UUID
    at: datetime
    lines: list[Line] = field(default_factory=list)
    colour: Colour | None = None
    raw: bytes = b""


class Point(NamedTuple):
    x: int
    y: float


class Keyed(TypedDict):
    a: int
    b: list[str]


SAMPLES = [
    (datetime, datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)),
    (datetime, datetime(2026, 2, 3, 4, 5, 6)),  # noqa: DTZ001 - without a zone it stays without
    (datetime, datetime(2026, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (date, date(2026, 2, 3)),
    (time, time(4, 5, 6, 7)),
    (timedelta, timedelta(days=-3, microseconds=7)),
    (UUID, UUID(int=2**127 + 5)),
    (Decimal, Decimal("1.2300")),
    (Decimal, Decimal("-1E+30")),
    (bytes, bytes(range(256))),
    (Colour, Colour.BLUE),
    (Size, Size.L),
    (Line, Line("a", Decimal("0.10"), Size.L)),
    (Tagged, Tagged(1)),
    (
        Order,
        Order(UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC), [Line("x", Decimal(1))], Colour.RED, b"\0\xff"),
    ),
    (Point, Point(1, 2.0)),
    (Keyed, {"a": 1, "b": ["x"]}),
    (Annotated[Keyed, msgspec.Meta(title="k")], {"a": 1, "b": ["x"], "more": 1.5}),
    (list[Annotated[Keyed, msgspec.Meta(title="k")] | None], [{"a": 1, "b": [], "more": [1]}, None]),
    (Annotated[list[Keyed], msgspec.Meta(min_length=1)], [{"a": 1, "b": [], "more": None}]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset("a")),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[UUID, date], {UUID(int=1): date(2026, 1, 1)}),
    (list[Order], [Order(UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC))]),
    (int | None, None),
    (Literal["a", "b"], "a"),
    (float, 1e16),
    (float, -0.0),
    (int, 2**80),
    (Any, {"a": [1.0]}),
]


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(("wanted", "value"), SAMPLES, ids=repr)
def test_typed_values_come_back_exactly(wanted, value):
    codec = Codec(wanted)
    text, back = codec.record(value, "it")
    assert back == value
    assert repr(back) == repr(value)
    assert repr(codec.decode(text, "it")) == repr(value)


@pytest.mark.spec("START-9")
@settings(deadline=None)
@given(st.builds(Order, id=st.uuids(), at=st.datetimes(timezones=st.just(UTC)), raw=st.binary(max_size=50),
                 colour=st.none() | st.sampled_from(Colour)))  # fmt: skip
def test_any_order_comes_back_exactly(order):
    codec = Codec(Order)
    text, back = codec.record(order, "it")
    assert (back, codec.decode(text, "it")) == (order, order)


@pytest.mark.spec("START-9")
@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_keep_every_digit(value):
    _, back = Codec(Decimal).record(value, "it")
    assert str(back) == str(value)


@pytest.mark.spec("FLOW-17")
@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (int, "three"), (int, 1.5), (str, 1), (list[int], ["a"]), (Order, {"id": 1}), (Line, {"sku": "a"}),
        (Colour, "green"), (datetime, "yesterday"), (type(None), 1), (Literal["a"], "b"),
        (dict[str, int], {"a": "b"}),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_of_another_shape_is_refused_and_the_message_says_where(wanted, value):
    with pytest.raises(BadValue, match="it does not match its annotation"):
        Codec(wanted).record(value, "it")


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (float, float("nan")), (list[float], [1.0, float("inf")]), (str, "a\0"),
        (Order, Order(UUID(int=1), "x\0")),
        (Line, Line("nul\0", Decimal(1))), (dict[str, str], {"\0": ""}),
    ],
    ids=repr,
)  # fmt: skip
def test_text_that_no_store_can_keep_is_refused_in_typed_values_too(wanted, value):
    with pytest.raises(BadValue, match=r"^it "):
        Codec(wanted).record(value, "it")


@dataclass
class Half:
    """A dataclass with a field whose annotation is incomplete."""

    anything: Any


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(
    "inside", [b"raw", UUID(int=1), {1: 2}, [Decimal(1)], {"a": {1}}, float("nan")], ids=repr
)
def test_a_field_without_a_type_must_be_untyped_json(inside):
    """Otherwise the value would silently come back changed."""
    with pytest.raises(BadValue):
        Codec(Half).record(Half(inside), "it")
    assert Codec(Half).record(Half({"a": [1]}), "it")[1] == Half({"a": [1]})
    assert Codec(Half).record(Half((1, 2)), "it")[1] == Half([1, 2])


def test_an_untyped_value_of_the_right_shape_becomes_the_annotated_type():
    assert Codec(Line).record({"sku": "a", "price": "1.0"}, "it")[1] == Line("a", Decimal("1.0"))


def test_a_dataclass_where_nothing_is_said_of_types_is_refused():
    with pytest.raises(BadValue, match="annotate the type"):
        Codec().record(Half(1), "it")


def test_an_annotation_that_describes_no_data_says_nothing():
    async def stream() -> Any | functools.partial[int]:
        return 1

    assert result_codec(stream).record({"a": 1}, "it")[1] == {"a": 1}


def test_annotations_of_partials_and_callable_objects_are_found():
    def charge(order: Order, times: int) -> Line:
        return Line("a", Decimal(times))

    class Charger:
        def __call__(self, order: Order) -> Line:
            return Line("b", Decimal(1))

    for callee in (charge, functools.partial(charge, times=1), Charger()):
        assert annotated(callee)["return"] is Line
        assert result_codec(callee).record(Line("a", Decimal("1.0")), "it")[1] == Line("a", Decimal("1.0"))


def test_an_annotation_that_cannot_be_resolved_is_no_annotation():
    def odd() -> NoSuchThing:  # noqa: F821
        return 1

    assert annotated(odd) == {}
    assert result_codec(odd).record(1, "it")[1] == 1


def test_a_function_that_says_it_returns_none_returns_none():
    def nothing() -> None:
        return None

    assert result_codec(nothing).record(None, "it") == ("null", None)
    with pytest.raises(BadValue):
        result_codec(nothing).record(1, "it")


@pytest.mark.spec("START-9")
def test_pydantic_models_come_back_as_such():
    import pydantic

    class Inner(pydantic.BaseModel):
        when: datetime
        total: Decimal

    class Model(pydantic.BaseModel):
        id: UUID
        inner: list[Inner]

    value = Model(id=UUID(int=1), inner=[Inner(when=datetime(2026, 1, 1, tzinfo=UTC), total=Decimal("1.10"))])
    for wanted in (Model, list[Model]):
        codec, given_ = Codec(wanted), value if wanted is Model else [value]
        text, back = codec.record(given_, "it")
        assert (back, codec.decode(text, "it")) == (given_, given_)
    with pytest.raises(BadValue):
        Codec(Model).record({"id": "no"}, "it")
    with pytest.raises(BadValue):
        Codec(Model).decode('{"id": "no"}', "it")


T = TypeVar("T")


class Page(msgspec.Struct, Generic[T]):
    rows: list[T]


@dataclass
class Sheet(Generic[T]):
    rows: list[T]


@pytest.mark.parametrize("generic", [Page, Sheet])
def test_a_generic_type_around_a_typed_dict_may_be_optional(generic):
    """The keys that the TypedDict does not name are kept there too."""
    codec, value = Codec(generic[Keyed] | None), generic([{"a": 1, "b": [], "more": 2}])
    assert codec.record(value, "the result")[1] == value
    assert codec.decode("null", "the result") is None
