"""Large JSON texts are read in pieces: the result is that of one call, and no call sees all of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import BadValue, TooLarge, codec, large_json
from holdfast.codec import Codec, parse, untyped, written
from holdfast.large_json import LARGE_BYTES, RepeatedKey, rewritten

TEXTS = {
    "objects": b"[" + b",".join([b"{}"] * 60_000) + b"]",
    "members": b"{" + b",".join(b'"%x":[1]' % n for n in range(20_000)) + b"}",
    "nested": b"[" + b",".join([b"[" * 60 + b"]" * 60] * 2000) + b"]",
    "deep": b"[" * 60 + b"[" + b",".join([b"{}"] * 60_000) + b"]" + b"]" * 60,
    "spaces": b'  { "a" : [ %s ] , "b:" : { } }  ' % b" , ".join([b"1.50e1"] * 20_000),
    "text": b'"%s"' % (b"\\u00e9" * 30_000),
}


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize("name", TEXTS)
def test_a_large_text_becomes_the_same_text_as_in_one_call(name):
    text = TEXTS[name]
    assert len(text) > LARGE_BYTES
    assert written(text, "params").text == untyped.encode(parse(text, "params"), "params")


@pytest.mark.parametrize("name", [one for one in TEXTS if one != "text"])
def test_no_call_sees_more_than_a_piece(name):
    sizes = []

    def read(piece):
        sizes.append(len(piece))
        return piece.decode()

    rewritten(TEXTS[name], read)
    assert max(sizes) <= 2 * LARGE_BYTES + 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda one: st.lists(one, max_size=8) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), one, max_size=8
    ),
    max_leaves=30,
)  # fmt: skip


@pytest.mark.spec("HTTP-4")
@settings(deadline=None)
@given(JSON, st.integers(1, 40), st.booleans())
def test_any_text_is_split_without_a_change(value, most, spaced):
    text = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    before, large_json.LARGE_BYTES = large_json.LARGE_BYTES, most
    try:
        assert rewritten(text, lambda piece: untyped.encode(parse(piece, "x"), "x")) == untyped.encode(
            value, "x"
        )
    finally:
        large_json.LARGE_BYTES = before


@pytest.mark.parametrize("where", ["outside", "inside", "last", "nested"])
def test_a_key_that_occurs_twice_is_found(where):
    many = b",".join(b'"%x":{"a":1}' % n for n in range(20_000))
    text = {
        "outside": b'{"a":{"x":1},%s,"a":{"x":1}}' % many,
        "inside": b'{"x":{"a":1,"a":2},%s}' % many,
        "last": b'{%s,"0":"::"}' % many,
        "nested": b'{"x":{%s},"x":1}' % many,
    }[where]
    with pytest.raises(BadValue, match="twice in one object"):
        written(text, "params")
    if where != "inside":
        with pytest.raises(RepeatedKey):
            rewritten(text, lambda piece: piece.decode())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'["' + b"x" * LARGE_BYTES + b'\\u0000"]', "NUL"),
        (b"[" + b"1," * LARGE_BYTES + b"]", "not JSON"),
        (b"[" * 70 + b"1," * LARGE_BYTES + b"1" + b"]" * 70, "nested deeper"),
        (b'{"holdfast.sealed":1,"a":"' + b"x" * LARGE_BYTES + b'"}', "marks encrypted values"),
        (b'["' + b"x" * LARGE_BYTES + b'\\ud800"]', "surrogate|not JSON"),
        (b'["' + b"x" * LARGE_BYTES + b'\xff"]', "not JSON"),
        (b"[" + b"1e999," * LARGE_BYTES + b"1]", "out of range|not JSON"),
    ],
)
def test_a_bad_large_text_is_refused(text, error):
    with pytest.raises(BadValue, match=error):
        written(text, "params")


def test_a_mark_inside_a_large_text_is_a_value_like_any_other():
    text = b'[{"holdfast.sealed":1},"%s"]' % (b"x" * LARGE_BYTES)
    assert written(text, "params").text == text.decode()


def test_a_text_that_grows_beyond_the_limit_is_refused():
    text = b"[" + b",".join([b"1e9"] * 900_000) + b"]"  # 1000000000.0
    with pytest.raises(TooLarge):
        written(text, "params")


def test_a_codec_with_a_type_checks_a_written_value():
    assert Codec(list[int]).encode(codec.Written("[1,2]"), "params") == "[1,2]"
    with pytest.raises(BadValue, match="annotation"):
        Codec(list[int]).encode(codec.Written('["a"]'), "params")
