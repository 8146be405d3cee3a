"""Untyped values: they come back exactly, or are refused with the path of the field."""

from __future__ import annotations

import json
import math
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.bounds import VALUE_BYTES
from holdfast.codec import DEPTH_MAX, Codec, digest, parse, untyped
from holdfast.errors import BadValue, TooLarge

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


def exactly(left, right):
    """Return True for equal values of the same types on all levels, with the same signs of zero."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(exactly(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(exactly, left, right))
    return left == right


@pytest.mark.slow
@pytest.mark.spec("START-9")
@settings(deadline=None)
@given(VALUES)
@example(2**53 + 1)
@example(-(2**200))
@example(1e16)
@example(-0.0)
@example([1, 1.0, True])
@example({"a": [], "b": {}, "": None})
@example("\u2028\ufeff\U0001f389")
@example(5e-324)
@example(1.7976931348623157e308)
@example("\\u0000 is six characters")
def test_values_that_json_can_hold_come_back_exactly(value):
    text, back = untyped.record(value, "it")
    assert exactly(back, value)
    assert exactly(untyped.decode(text, "it"), value)
    assert exactly(json.loads(text), value), "and every other reader of JSON agrees"


@pytest.mark.spec("START-9", "FLOW-17")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "it is nan"),
        ([1, float("inf")], "it at [1] is inf"),
        ({"a": {"b": [0, -float("inf")]}}, "it at .a.b[1] is -inf"),
        ("a\0b", "it holds a NUL"),
        ({"a": ["x", "\0"]}, "it at .a[1] holds a NUL"),
        ({"a\0": 1}, "a key of .) holds a NUL"),
        ("\ud800", "half of a surrogate pair"),
        ({"x": "ok \udfff"}, ".x holds half of a surrogate pair"),
        ({"\ud800": 1}, "surrogate"),
        ({1: "a"}, "has the key 1: keys are strings"),
        ({"a": {None: 1}}, "at .a has the key None"),
        ({True: 1}, "has the key True"),
        ({1.5: 1}, "has the key 1.5"),
        ({"a": {1, 2}}, "at .a is a set"),
        (b"raw", "is a bytes"),
        ({"when": datetime(2026, 1, 1)}, "at .when is a datetime"),  # noqa: DTZ001
        ([UUID(int=1)], "at [0] is a UUID"),
        (Decimal(1), "is a Decimal"),
        pytest.param(object(), "is an object", id="object"),
        ({"f": len}, "at .f is a builtin_function_or_method"),
        (1 + 2j, "is a complex"),
    ],
    ids=str,
)
def test_a_value_that_would_come_back_changed_is_refused_by_its_path(value, said):
    with pytest.raises(BadValue) as refused:
        untyped.record(value, "it")
    assert said in str(refused.value)
    assert str(refused.value).startswith("it")


class Text(str):
    __slots__ = ()


class Number(int):
    pass


@pytest.mark.spec("START-9")
@settings(deadline=None)
@given(VALUES, st.sampled_from([float("nan"), "\0", b"x", object()]), st.data())
def test_one_bad_value_anywhere_is_found(value, bad, data):
    where = data.draw(st.sampled_from(["list", "dict", "both"]))
    spoilt = {"list": [value, bad], "dict": {"v": value, "b": bad}, "both": [{"v": [value, {"b": bad}]}]}[
        where
    ]
    with pytest.raises(BadValue):
        untyped.record(spoilt, "it")


@pytest.mark.spec("START-9")
def test_the_limit_is_in_bytes_and_the_message_names_the_size():
    small = Codec(limit=10)
    assert small.encode("x" * 8, "it") == '"' + "x" * 8 + '"'
    with pytest.raises(TooLarge, match=r"it is 11 bytes as JSON, the limit is 10"):
        small.encode("x" * 9, "it")
    with pytest.raises(TooLarge, match="it is 14 bytes"):
        small.encode("ü" * 6, "it")


@pytest.mark.spec("START-9")
def test_the_default_limit_is_four_mebibytes():
    assert VALUE_BYTES == 4 * 2**20
    with pytest.raises(TooLarge):
        untyped.encode(["ü" * (2 * 2**20)], "it")


def nested(depth, inside=None):
    value = inside
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.spec("START-9")
def test_depth_is_limited_and_wide_values_are_not():
    assert untyped.record(nested(DEPTH_MAX - 1), "it")[1] == nested(DEPTH_MAX - 1)
    with pytest.raises(BadValue, match="it is nested deeper than 64 levels"):
        untyped.record(nested(DEPTH_MAX + 1), "it")
    with pytest.raises(BadValue, match="nested deeper"):
        untyped.record(nested(100_000), "it")
    assert untyped.record([[n] for n in range(1000)], "it")[1] == [[n] for n in range(1000)]


def test_a_value_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(BadValue):
        untyped.record(loop, "it")


@settings(deadline=None)
@given(VALUES, VALUES)
def test_the_digest_tells_calls_apart(one, other):
    first, second = untyped.encode(one, "it"), untyped.encode(other, "it")
    assert (digest("a.b.v1", first) == digest("a.b.v1", second)) == (first == second)
    assert digest("a.b.v1", first) != digest("a.b.v2", first)


@pytest.mark.parametrize("bad", ["", "{", "[1,]", "{'a': 1}", "nul", "\ud800", "NaN"])
def test_bad_json_that_a_person_typed_is_told_where_it_breaks(bad):
    with pytest.raises(BadValue, match="params is not JSON"):
        parse(bad, "params")


def test_a_subclass_of_text_or_number_is_the_same_now_and_later():
    for value in (Text("a"), Number(3)):
        try:
            text, back = untyped.record(value, "it")
        except BadValue:
            continue
        assert type(back) is type(untyped.decode(text, "it"))


def test_a_tuple_is_a_list_now_and_later():
    """This holds without an annotation. The first execution gets the same value as a later one."""
    text, back = untyped.record({"pair": (1, (2,))}, "it")
    assert back == untyped.decode(text, "it") == {"pair": [1, [2]]}
