"""Output for people: columns, times, and text that must not steer the terminal."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.logs import TextFormatter
from holdfast.cli.terminal import cut, table, width_of, wrapped
from holdfast.shown.text import clean
from holdfast.shown.times import ago, span
from holdfast.shown.tracebacks import trace_lines

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0, "0 ms"), (0.0004, "<1 ms"), (0.31, "310 ms"), (9.94, "9.9 s"), (59, "59 s"), (119, "119 s"),
     (120, "2 min"), (7140, "119 min"), (7200, "2 h"), (299.9, "5 min"),
     (172_799.8, "2 d"), (172_800, "2 d"), (158_400, "44 h"), (31_536_000, "365 d")],
)  # fmt: skip
def test_a_span_is_shown_in_one_unit(seconds, says):
    assert span(seconds) == says


@pytest.mark.parametrize(("seconds", "says"), [(0.4, "now"), (150, "2 min ago"), (-150, "in 2 min")])
def test_an_instant_is_shown_relative_to_now(seconds, says):
    assert ago(NOW - timedelta(seconds=seconds), NOW) == says


def test_text_of_users_cannot_steer_the_terminal():
    assert clean("a\x1b[31mb\nc\x00d\u202ee") == r"a\x1b[31mb\nc\x00d\u202ee"
    assert clean("x" * 61_234, 400) == "x" * 400 + "… (61,234 characters)"


def test_columns_are_aligned_also_under_wide_letters():
    lines = table(["A", "B"], [["日本", "x"], ["abcd", "y"]])
    assert [width_of(line) for line in lines] == [7, 7, 7]


def test_a_table_on_a_terminal_never_wraps(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    lines = table(["RUN", "NEWS"], [["1234", "a long story " * 9]])
    assert all(width_of(line) <= 40 for line in lines)
    assert lines[1].endswith("…")


def test_indented_text_is_wrapped_on_a_terminal_only(monkeypatch):
    said = "to mend it: start a worker that has these types"
    assert wrapped(said, 9) == [" " * 9 + said]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    assert wrapped(said, 9) == ["         to mend it: start a worker that", "         has these types"]


TRACE = """Traceback (most recent call last):
  File "/usr/lib/holdfast/engine/steps.py", line 174, in _tries
    value = await (
            ^^^^^^^
  File "/home/ada/shop.py", line 9, in charge
    raise ValueError("no card")
ValueError: no card
"""


def test_a_traceback_has_a_heading_and_none_of_our_own_frames():
    head, *frames = trace_lines(TRACE)
    assert head == "Traceback (most recent call last, after 1 frame of holdfast):"
    assert frames == [
        '  File "/home/ada/shop.py", line 9, in charge',
        '    raise ValueError("no card")',
        "ValueError: no card",
    ]
    assert trace_lines("") == []


def test_a_cut_text_fits():
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 3) == "abc"
    assert cut("a" + "\u0301" * 100_000, 10) == "a" + "\u0301" * 39 + "…"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("shop.order.v1 {} succeeded after 0.31 s", "shop.order.v1 succeeded after 0.31 s"),
        ("run {}: the engine failed", "the engine failed"),
    ],
)
def test_a_log_line_has_time_level_run_and_what_happened(message, says):
    text = message.format("0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10")
    record = logging.LogRecord("holdfast", logging.WARNING, "", 0, text, None, None)
    said = TextFormatter(with_date=False).format(record)
    parts = [
        part.strip()
        for part in said.replace("\x1b[2m", "").replace("\x1b[33m", "").replace("\x1b[0m", "").split("  ")
        if part.strip()
    ]
    assert parts[1:] == ["warning", "5d0c8f10", says]


def test_a_table_of_megabytes_is_cut_in_no_time():
    began = time.perf_counter()
    lines = table(["A", "B"], [["x" * 4_000_000, "日" * 4_000_000]] * 3)
    assert time.perf_counter() - began < 5
    assert len(lines[1]) < 20_000
    assert lines[1].endswith("…")
