"""Hostile text: decoding gives a value or BadValue, and never takes long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.bounds import VALUE_BYTES
from holdfast.codec import DEPTH_MAX, Codec, parse, shown, untyped
from holdfast.errors import BadValue, TooLarge
from holdfast.roundtrip import deeper


class Size(IntEnum):
    S = 1


class Name(Enum):
    ONE = "1"


class Stop(TypedDict):
    city: str
    nights: NotRequired[int]


class Trip(TypedDict):
    stops: list[Stop]


@dataclass
class Picky:
    n: int

    def __post_init__(self):
        {0: 1}[self.n]  # KeyError for everything but 0


class Leg(msgspec.Struct):
    stop: Stop
    more: dict[str, Stop] | None = None


class Pair(NamedTuple):
    left: Stop
    right: int


TYPES = [
    int, float, str, bytes, Decimal, datetime, timedelta, UUID, Size, Picky, Trip, Leg, Pair, list[Stop],
    dict[int, Any], dict[float, int], set[int], tuple[int, Stop], Leg | int | None,
]  # fmt: skip
CODECS = [untyped, *map(Codec, TYPES)]
DEEP = "[" * 100_000
DIGITS = "9" * 5000
HOSTILE = [
    "", DEEP, "[" * 500 + "]" * 500, '{"a":' * 5000, DIGITS, "-" + DIGITS, f'{{"{DIGITS}": 1}}', "1e400",
    "-1e400", "1e-400", '"\\ud800"', '"\\ud800\\u0041"', '"\\u0000"', "\ud800", '"\ud800"', "\0", "NaN",
    "\ufeff1", '{"n": 7}', '{"stops": 7}', '{"stops": [{"city": 1}]}', b"\xff", b'"\xff"', b'{"\xff": 1}',
    '{"stop": {"city": "x", "y": 1}, "more": {"k": 2}}', '"sNaN"', '"P99999999999999999D"',
    '"9999-12-31T23:59:59.9999999-23:59"',
]  # fmt: skip
JSONISH = st.text(st.sampled_from('[]{}:,"\\ue0193-.+ntrfalsIN \n\0\ud800é'), max_size=60)


def read(text):
    """Return the messages of all readers, each of which must refuse the text."""
    said = []
    for one in (parse, *(codec.decode for codec in CODECS)):
        try:
            one(text, "it")
        except BadValue as error:
            said.append(str(error))
    return said


def clear(said):
    return all(line.startswith("it ") and line.isprintable() and len(line) < 1000 for line in said)


@pytest.mark.spec("FLOW-17")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_a_bad_value(text):
    assert clear(read(text))


@pytest.mark.spec("FLOW-17")
@settings(deadline=None, max_examples=150)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60)
    | JSONISH
    | JSONISH.map(lambda one: one.encode(errors="replace"))
)
@example("[" * 65 + "]" * 65)
def test_any_bytes_and_any_text_are_a_value_or_a_bad_value(text):
    assert clear(read(text))


@settings(deadline=None, max_examples=100)
@given(st.recursive(st.none() | st.text(st.sampled_from('[{"\\é')), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(st.sampled_from(']}"\\')), inner, max_size=3), max_leaves=20),
       st.integers(0, 6))  # fmt: skip
def test_the_depth_of_a_text_is_counted_as_its_value_is_nested(value, levels):
    def depth(one):
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inside is None else 1 + max(map(depth, inside), default=0)

    assert deeper(json.dumps(value).encode(), levels) == (depth(value) > levels)


@pytest.mark.spec("START-9")
@pytest.mark.parametrize("read", [untyped.decode, parse])
def test_the_limits_hold_for_stored_text_too(read):
    assert read("[" * DEPTH_MAX + "]" * DEPTH_MAX, "it")
    assert len(untyped.encode(read("[" * DEPTH_MAX + "1" + "]" * DEPTH_MAX, "it"), "it")) == 2 * DEPTH_MAX + 1
    with pytest.raises(BadValue, match="it is nested deeper than 64 levels"):
        read("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "it")
    with pytest.raises(TooLarge, match="it is 4,194,305 bytes as JSON"):
        read('"' + "x" * (VALUE_BYTES - 1) + '"', "it")
    with pytest.raises(TooLarge):
        read('"' + "ü" * (VALUE_BYTES // 2) + '"', "it")


def test_the_depth_of_the_largest_texts_is_found_in_one_pass():
    """There is no recursion and no loop: a text of two million levels costs the same as a flat one."""
    half = VALUE_BYTES // 8
    for text in ("[" * half, '"' * half, "[]" * half, '\\"' * half, "[" * half + "]" * half):
        assert deeper(text.encode()) == (text[:2] == "[[")


TWICE = [
    (dict[int | str, int], {1: 1, "1": 2}), (dict[int | str, int], {"1": 2, 1: 1}),
    (dict[str, dict[int | str, int]], {"a": {"1": 1, 1: 1}}), (dict[float | str, int], {"1.5": 2, 1.5: 1}),
    (dict[Size | str, int], {"1": 2, Size.S: 1}), (dict[Name | str, int], {"1": 2, Name.ONE: 1}),
    (list[dict[int | str, Any]], [{"1": 2, 1: 1}]), (dict[Any, Any], {"1": 2, 1: 1}),
    (Any, {"1": 2, 1: 1}), (Any, {"a": [{1: 2, "1": 1}]}), (Any, {True: 1, "true": 2}),
    (Any, {None: 1, "null": 2}), (Any, {1.0: 1, "1.0": 2}), (Any, {Name.ONE: 1, "1": 2}),
    (Any, {Size.S: 1, "1": 2}),
    (Any, {10**5000: 1}), (dict[int | str, int], {10**5000: 1, "1": 2}),
]  # fmt: skip


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(("wanted", "value"), TWICE, ids=range(len(TWICE)))
def test_two_keys_that_become_one_are_refused_by_name(wanted, value):
    with pytest.raises(BadValue) as refused:
        Codec(wanted).record(value, "it")
    assert "key" in str(refused.value) or "digits" in str(refused.value)


def test_two_keys_that_become_one_are_named_and_not_shown_to_people_either():
    with pytest.raises(BadValue, match="it has two keys that are both '1' in JSON"):
        Codec(dict[int | str, int]).record({"1": 2, 1: 1}, "it")
    with pytest.raises(BadValue, match="it has two keys that are both '1' in JSON"):
        shown({"1": 2, 1: 1}, "it")
    with pytest.raises(BadValue, match="params has the key 'a' twice"):
        parse('{"b": [{"a": 1, "a": 2}]}', "params")


def test_two_keys_of_a_pydantic_model_that_become_one_are_refused():
    import pydantic

    class Model(pydantic.BaseModel):
        named: dict[int | str, int]

    with pytest.raises(BadValue, match="the key 1"):
        Codec(Model).record(Model(named={"1": 2, 1: 1}), "it")


KEPT = [
    (Stop, {"city": "Chur", "note": "late", "more": {"a": [1]}}),
    (Trip, {"stops": [{"city": "Chur", "note": "late"}], "by": "Ada"}),
    (dict[str, Stop], {"a": {"city": "Chur", "note": 1}}),
    (tuple[int, Stop], (1, {"city": "Chur", "note": 1})),
    (tuple[Stop, ...], ({"city": "Chur", "note": 1},)),
    (Pair, Pair({"city": "Chur", "note": 1}, 2)),
    (Leg, Leg({"city": "Chur", "note": 1}, {"x": {"city": "Chur", "note": 2}})),
    (Stop | None, {"city": "Chur", "note": 1}),
    (list[Leg | int], [1, Leg({"city": "Chur", "note": 1})]),
]


@pytest.mark.spec("START-9")
@pytest.mark.parametrize(("wanted", "value"), KEPT, ids=range(len(KEPT)))
def test_keys_that_a_typed_dict_does_not_name_are_kept(wanted, value):
    codec = Codec(wanted)
    text, back = codec.record(value, "it")
    assert back == value
    assert codec.decode(text, "it") == value


def test_a_key_that_a_typed_dict_does_not_name_must_be_untyped_json():
    with pytest.raises(BadValue, match=r"it\.note is a UUID, which would come back as a str"):
        Codec(Stop).record({"city": "Chur", "note": UUID(int=1)}, "it")


def test_a_long_or_hostile_key_is_cut_and_escaped_in_the_message():
    with pytest.raises(BadValue) as refused:
        untyped.record({"a\x1b[31m\n" + "k" * 100_000: {"b": float("nan")}}, "it")
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()
