"""Input of the producer script: it takes what the library takes, and leaves nothing where it refuses."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
import redis

from holdfast import codec
from holdfast.errors import BadValue, TooLarge
from holdfast.records import Definition
from holdfast.stores.redis.producing import producer
from holdfast.testing.contract.driver import TYPE, gate, hear, nap
from tests.stores.redis.test_scripts import dump

GOOD = [
    "null", " true ", "0", "-0", "-0.0", "1E5", "1e-7", "123456789012345678901234567890", '""', "[]", "{}",
    '"\\ud83d\\ude00 \\u00e4 \\\\u0000 \\" \\/ ä 😀 \x7f . a.b -.5 1."', '{"a":[{"b":{}},[[]]],"":"}"}',
    "\n[1 ,\t2\r]\n", "[" * 64 + "]" * 64, "1.7976931348623157e308", '{"a":1,"a":2}',
]  # fmt: skip
BAD = [
    "", " ", "nul", "NaN", "nan", "Infinity", "-inf", "[NaN]", "0x1F", "01", "-01", "+1", "1.", "-.5", ".5",
    "1.e5", "[1.]", "1e", "--1", "[1,]", "[,1]", "[1 2]", "{,}", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}",
    '{"a":1 "b":2}', "'a'", '"a', '"a\nb"', '"a\tb"', '"\x01"', '"\\x41"', '"\\u12"', '"\\ud800"',
    '"\\udc00"', '"\\ud800\\u0041"', '"\\u0000"', '"\\\\\\u0000"', "[1]]", "[[1]", "{]", "[}", "1 2",
    "true false", "[1e400]", "-1e400", "[" * 65 + "]" * 65, "\x00", '"\x00"', "[1]\x00", "\x0b1", "[1\x0c]",
    '{"holdfast.sealed":1}', ' { "holdfast.sealed" : 1}', '"a"b', '["a""b"]', "//", "[1]//", "\ufeff1",
]  # fmt: skip


def is_taken_by_the_library(text):
    try:
        codec.untyped.encode(codec.parse(text, "params", repeated=False), "params")
    except (BadValue, TooLarge):
        return False
    return True


class TestParams:
    @pytest.mark.spec("START-9")
    @pytest.mark.parametrize("text", GOOD)
    def test_the_text_is_kept_as_it_is(self, produce, text):
        assert is_taken_by_the_library(text)
        id_, _ = produce(TYPE, text)
        run = produce.driver.get(UUID(id_))
        assert run.params_json == text
        assert run.params == json.loads(text)
        assert produce.driver.claim()[0].params == text

    @pytest.mark.spec("START-9", "START-10")
    @pytest.mark.parametrize("text", BAD)
    def test_what_is_no_value_is_refused_as_by_the_library(self, produce, text):
        assert not is_taken_by_the_library(text)
        produce.refused(TYPE, text, match="params")

    @pytest.mark.spec("START-9")
    @pytest.mark.parametrize(
        "text", [b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf5\x80\x80\x80"', b"\x80"]
    )
    def test_what_is_not_utf_8_is_refused(self, produce, text):
        produce.refused(TYPE, text, match="params is not JSON")

    @pytest.mark.slow
    @pytest.mark.spec("START-9")
    def test_params_may_have_4_mib(self, produce):
        most = '"' + "x" * (4 * 1024 * 1024 - 2) + '"'
        assert produce(TYPE, most)[1] == 1
        produce.refused(TYPE, most + " ", match="params is 4194305 bytes as JSON, the limit is 4194304")

    @pytest.mark.slow
    @pytest.mark.spec("START-9")
    def test_texts_with_one_character_changed_are_judged_as_by_the_library(self, produce):
        text = '{"a": [1.5, -2e3, true], "b\\u00e4": {"c": "x\\n\\ud83d\\ude00", "d": null}}'
        wrong = []
        for place in range(len(text)):
            for other in ("", "0", ".", "-", "e", ",", ":", "[", "}", '"', "\\", "u", "\n", "#", " ", "+"):
                changed = text[:place] + other + text[place + 1 :]
                try:
                    is_taken = produce(TYPE, changed)[1] == 1
                except redis.ResponseError as error:
                    is_taken = not str(error).startswith("REFUSED params")
                if is_taken != is_taken_by_the_library(changed):
                    wrong.append(changed)
        assert wrong == []


class TestRefused:
    @pytest.mark.spec("START-6", "START-10")
    @pytest.mark.parametrize(
        "words",
        [
            ("shop", "1"), ("shop.v1", "1"), ("shop.order", "1"), ("shop.order.v0", "1"), ("", "1"),
            ("shop..order.v1", "1"), (".order.v1", "1"), ("shop.ordér.v1", "1"), ("shop.order.v1\n", "1"),
            ("shop.order.v1x", "1"), ("a." + "b" * 251 + ".v1", "1"), ("holdfast.bulk.v1", "1"),
            (TYPE,), (TYPE, "1", "", "", "", "", ""),
            (TYPE, "1", "k" * 256), (TYPE, "1", "a\x1fb"), (TYPE, "1", "a\0b"), (TYPE, "1", b"\xff"),
            (TYPE, "1", "", "*"), (TYPE, "1", "", "ü" * 257), (TYPE, "1", "", "a\x1fb"),
            (TYPE, "1", "", "", "1000"), (TYPE, "1", "", "", "-1"), (TYPE, "1", "", "", "1.5"),
            (TYPE, "1", "", "", "high"), (TYPE, "1", "", "", "", "-1"), (TYPE, "1", "", "", "", "1.5"),
            (TYPE, "1", "", "", "", "soon"), (TYPE, "1", "", "", "", "946080000000"),
        ],
        ids=repr,
    )  # fmt: skip
    def test_wrong_words_are_refused_and_leave_nothing(self, produce, words):
        with produce.store.client() as client:
            before = dump(produce.driver)
            with pytest.raises(redis.ResponseError, match=r"^REFUSED "):
                client.eval(producer(), 1, produce.numbers, *words)
            assert dump(produce.driver) == before

    @pytest.mark.parametrize(
        ("step", "why"),
        [(gate("ok"), "approval"), (hear("come"), "a wait for an event"), (nap("rest"), "a sleep")],
    )
    def test_a_plan_that_begins_with_a_wait_is_refused(self, produce, step, why):
        produce.driver.publish(step, "A")
        produce.refused(
            match=f"begins with .*{why}: start it through the HTTP API, by `holdfast start` or by"
        )

    def test_a_timeout_beyond_exact_numbers_is_refused(self, produce):
        produce.driver.run(produce.store.publish([Definition(type=TYPE, timeout_seconds=1e10)]))
        produce.refused(match="has a timeout of 30 years or more")

    def test_a_namespace_that_no_store_has_is_refused(self, produce):
        with produce.store.client() as client:
            for key in (
                "{nobody-has-this}:numbers",
                "holdfast:numbers",
                "{holdfast}:number",
                "{a:b}:numbers",
            ):
                with pytest.raises(redis.ResponseError, match=r"^REFUSED "):
                    client.eval(producer(), 1, key, TYPE, "1")
            with pytest.raises(redis.ResponseError, match=r"^REFUSED give one key"):
                client.eval(producer(), 2, produce.numbers, produce.numbers, TYPE, "1")
            client.hset(produce.numbers, "schema", "2")
            with pytest.raises(redis.ResponseError, match=r"^REFUSED .*version '2'"):
                client.eval(producer(), 1, produce.numbers, TYPE, "1")
            client.hset(produce.numbers, "schema", "1")

    def test_a_definition_of_an_older_library_is_refused(self, produce):
        produce.driver.publish("A")
        with produce.store.client() as client:
            client.delete(produce.store._names("begin", TYPE))
        produce.refused(match="published by a version without starts by script")
