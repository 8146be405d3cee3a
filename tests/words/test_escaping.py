"""Text of other people on one line of a terminal or a log."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.escaping import LOGGED, escaped, escaped_lines, safe_logger

HOSTILE = "\x1b]0;x\x07 \x1b[2J \r\nERROR forged \u202e \u2028 \u200b \x9b2J \ufeff \U000e0041 \ud800 \t"


@pytest.mark.spec("OPS-6")
def test_control_and_format_characters_are_shown_as_escapes() -> None:
    assert escaped(HOSTILE) == (
        r"\x1b]0;x\x07 \x1b[2J \r\nERROR forged \u202e \u2028 \u200b \x9b2J \ufeff \U000e0041 \ud800 \t"
    )


def test_text_of_any_script_stays_as_it_is() -> None:
    for text in ("Grüße", "注文 済み", "заказ", "naïve café", "a\\b", '{"a":"b"}', "✓ 🎉"):
        assert escaped(text) == text
    assert escaped("wide\u3000and\u00a0narrow") == "wide and narrow"


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    assert escaped("x" * 200) == "x" * 200
    assert escaped("x" * 61_234) == "x" * 200 + "… (61,234 characters)"
    assert escaped("\x1b" * 100, 20) == r"\x1b" * 5 + "… (100 characters)"
    assert escaped("x" * 5_000, None) == "x" * 5_000


def test_megabytes_take_no_longer_than_their_beginning() -> None:
    began = time.perf_counter()
    for _ in range(100):
        escaped("\x1b" * 4_000_000)
    assert time.perf_counter() - began < 5


def test_an_error_without_a_text_is_shown_by_its_type() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert escaped(Odd()) == "<Odd without a text>"


def test_lines_keep_their_breaks_and_their_end() -> None:
    assert escaped_lines("a\n  b\x1b[2J\r\nc") == "a\n  b\\x1b[2J\\r\nc"
    said = escaped_lines("x" * 50_000 + "\nthe end", 100)
    assert said.startswith("(50,008 characters, the last 100 follow)\nxxx")
    assert said.endswith("\nthe end")


@pytest.mark.spec("OPS-6")
def test_arguments_and_tracebacks_of_log_lines_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    log = safe_logger("holdfast.test_escaping")
    try:
        _fail()
    except ValueError as error:
        log.warning("run %s: %s, %d of %g", HOSTILE, error, 3, 0.5, exc_info=True)
    log.warning("%s", "x" * 100_000)
    assert logging.getLogger("holdfast.test_escaping") is safe_logger("holdfast.test_escaping")
    (first, second) = caplog.records
    assert first.getMessage().isprintable()
    assert first.getMessage().endswith(", 3 of 0.5")
    assert "\n  ERROR forged \\u202e" in (first.exc_text or "")
    assert (first.exc_text or "").replace("\n", "").isprintable()
    assert len(second.getMessage()) < LOGGED + 30


def _fail() -> None:
    raise ValueError(HOSTILE)


def test_every_logger_of_the_library_is_a_safe_one() -> None:
    root = Path(holdfast.__file__).parent
    rooms = [path for room in ("engine", "stores", "sealing") for path in (root / room).rglob("*.py")]
    assert len(rooms) > 100
    assert [path for path in rooms if "getLogger(" in path.read_text()] == []


def test_joiners_of_words_and_emoji_stay() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for text in ("\u0645\u06cc\u200c\u062e\u0648", "\U0001f469\u200d\U0001f4bb", family):
        assert escaped(text) == text
    for text in ("pay\u200cpal", "\u200d", "é\u200d", "é\u200d\u200dé", "\u200cé", "é\u200c\n"):
        assert "\\u200" in escaped(text)
