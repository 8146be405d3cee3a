"""The experiments hostile and largest: the same seed makes the same values, and faults are found."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.bounds import VALUE_BYTES
from holdfast.codec import untyped
from verify.environment import stores
from verify.environment.cli_reader import steering
from verify.hostile import values
from verify.hostile.functions import Statements
from verify.hostile.hostile import hostile
from verify.hostile.roles import CLEAN, GRANTS, PAGE, PARSED
from verify.hostile.values import JSONS, TEXTS, HostileValues
from verify.large import workflows
from verify.large.largest import Sizes, largest
from verify.large.small_runs import Probe, read_probes
from verify.sabotage import RAW_TEXT

TINY = Sizes(texts=1, heavy=2, bytes_max=9_000_000, steps=30, waiters=3, waits=10, herd=30, patience=30.0)


@pytest.mark.parametrize("kind", workflows.CHARACTERS)
def test_the_largest_texts_are_as_large_as_a_value_may_be(kind):
    said = workflows.largest_text(kind)
    assert VALUE_BYTES - 6 < len(untyped.encode(said, "text").encode()) <= VALUE_BYTES


def test_the_longest_names_are_as_wide_as_a_name_may_be():
    assert len(workflows.wide(255, 1)) == 255
    assert len(workflows.wide(255, 1).encode()) == 4 * 255


@pytest.fixture
def light(monkeypatch):
    """Leave out values of megabytes."""
    monkeypatch.setattr(values, "HUGE_SHARE", 0.0)


@pytest.mark.usefixtures("light")
def test_the_same_seed_makes_the_same_statements():
    one, other = Statements(7), Statements(7)
    assert [repr(one.next()) for _ in range(100)] == [repr(other.next()) for _ in range(100)]
    assert repr(Statements(8).next()) != repr(Statements(7).next())


@pytest.mark.usefixtures("light")
def test_every_kind_of_statement_comes_up():
    stream = Statements(1)
    kinds = {stream.next().kind for _ in range(400)}
    assert {"insert", "take", "hold", "edit", "tell", "rows", "remove", "emit", "start", "commit"} <= kinds


@pytest.mark.usefixtures("light")
def test_statements_change_hostile_runs_only():
    stream = Statements(1)
    updates = [
        one for one in (stream.next() for _ in range(400)) if "update workflow.workflow_run" in one.sql
    ]
    assert updates
    assert all("type like 'hostile.%%'" in one.sql for one in updates)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain\ttext\n", ""),
        ("\x1b[32mgreen\x1b[0m", ""),
        ("\x1b[7mloud", "U+001B"),
        ("\x1b]0;title\x07", "U+001B"),
        ("one\rtwo", "U+000D"),
        ("c1 \x9b2J", "U+009B"),
        ("\u202eturned", "U+202E"),
        ("line\u2028line", "U+2028"),
        ("one\nFORGED two", "a forged line"),
    ],
)
def test_text_that_controls_a_terminal_is_found(text, found):
    assert steering(text).startswith(found)
    assert bool(steering(text)) == bool(found)


def test_in_data_for_machines_only_control_characters_count():
    assert steering('{"a":"\u202e"}', data=True) == ""
    assert steering('{"a":"\x9b"}', data=True)


def test_hostile_values_have_control_characters_and_bad_json():
    assert any("\x1b" in text for text in TEXTS)
    assert any("\\u0000" in text for text in JSONS)
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(JSONS[13])
    assert len(HostileValues(1).deep()) > 63


@pytest.mark.parametrize(
    ("state", "clean"), [("HF007", 1), ("22P02", 1), ("42501", 1), ("XX000", 0), ("57014", 0), ("53200", 0)]
)
def test_a_clean_refusal_differs_from_a_fault(state, clean):
    assert bool(CLEAN.fullmatch(state) or PARSED.fullmatch(state)) == bool(clean)


def test_the_page_says_which_rights_the_smaller_role_has():
    assert [name for name, _ in GRANTS.findall(PAGE.read_text("utf-8"))]


def test_a_small_run_that_is_still_open_counts_until_now(tmp_path):
    file = tmp_path / "probes"
    file.write_text("1 100 5.0 open\n2 10 5.0 open\n2 10 5.0 6.5\n")
    still, done = read_probes(file)
    assert done == Probe(5.0, 6.5, 10)
    assert still.seconds > 1.5
    assert done.is_beside(6.0, 7.0)
    assert not done.is_beside(7.0, 8.0)


@pytest.mark.slow
def test_a_store_with_large_values_goes_on():
    """The experiment itself works, with small counts."""
    report = asyncio.run(largest(TINY, ("steps", "waits", "herd")))
    assert [check for check in report.checks if not check.ok and check.name.startswith("L1")] == []
    assert report.figures["small_runs"] > 0
    assert report.figures["worker_mb"] > 0


@pytest.mark.slow
def test_text_that_is_shown_raw_is_caught():
    """The twin: commands print stored text as it is."""
    report = asyncio.run(hostile(150, stores.SQLITE, seed=7, sabotage=RAW_TEXT))
    assert "H3" in {check.name.partition(" ")[0] for check in report.red}
