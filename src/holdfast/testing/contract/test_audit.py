"""The audit log: noted, listed newest first, purged after 90 days."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from holdfast.errors import UsageError
from holdfast.records import ANY, SECOND, AuditEntry, AuditWrite, moment

from .keys import act, actions, audit, note

DAY = 86400


@pytest.mark.spec("TEN-1")
def test_what_is_noted_is_read_newest_first(driver):
    full = AuditWrite(
        tenant="acme", key_id="k00000000001", key_name="ci", action="start", target="run 7",
        outcome="refused", code="too_many_runs", request="r1",
    )  # fmt: skip
    note(driver, full, act("cancel"))
    driver.clock.turn(1)
    note(driver, act("retry", "acme"))
    note(driver)
    assert actions(driver) == ["retry", "cancel", "start"]
    (entry,) = audit(driver, actions=("start",))
    assert entry == AuditEntry(
        seq=entry.seq, at=moment(driver.clock.now - SECOND), tenant="acme", key_id="k00000000001",
        key_name="ci", action="start", target="run 7", outcome="refused", code="too_many_runs", request="r1",
    )  # fmt: skip


@pytest.mark.spec("TEN-1", "TEN-2")
def test_lists_are_filtered_and_paged(driver):
    for n in range(6):
        note(driver, act(f"a{n}", "acme" if n % 2 else "beta", key_id="one" if n < 3 else "two"))
        driver.clock.turn(10)
    begun = driver.clock.now - 60 * SECOND
    assert actions(driver, "acme") == ["a5", "a3", "a1"]
    assert actions(driver, "acme", limit=2) == ["a5", "a3"]
    last = audit(driver, "acme", limit=2)[-1].seq
    assert actions(driver, "acme", after=last) == ["a1"]
    assert actions(driver, ANY, after=last, limit=2) == ["a2", "a1"]
    assert actions(driver, actions=("a1", "a4", "zz")) == ["a4", "a1"]
    assert actions(driver, keys=("one",)) == ["a2", "a1", "a0"]
    assert actions(driver, "beta", keys=("one", "two"), actions=("a2", "a5")) == ["a2"]
    assert actions(driver, between=(begun + 10 * SECOND, begun + 30 * SECOND)) == ["a2", "a1"]
    assert actions(driver, between=(begun + 50 * SECOND, None)) == ["a5"]
    assert actions(driver, between=(None, begun + 1)) == ["a0"]
    assert actions(driver, "ac") == actions(driver, limit=0) == actions(driver, after=0) == []


@pytest.mark.spec("TEN-1", "READ-1")
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_page_is_found_in_slices(driver, rows):
    """However few rows one statement looks at, only an empty page is the end."""
    for n in range(20):
        who = {"tenant": "acme" if n % 3 else "beta", "key_id": ("", "one", "two", "one")[n % 4]}
        note(driver, AuditWrite(action=f"a{n % 10}", target=str(n), **who))
        driver.clock.turn(1000)
    begun = driver.clock.now - 20_000 * SECOND
    whole = audit(driver)
    middle = (begun + 5_000 * SECOND, begun + 9_000 * SECOND)
    cases = (
        ({}, range(20)), ({"actions": ("a0", "a5")}, (0, 5, 10, 15)), ({"tenant": "beta"}, range(0, 20, 3)),
        ({"keys": ("one",)}, range(1, 20, 2)), ({"keys": ("two", "two", "no")}, range(2, 20, 4)),
        ({"keys": ("one", "two"), "actions": ("a1", "a2"), "tenant": "acme"}, (1, 2, 11)),
        ({"between": middle}, range(5, 9)), ({"between": (None, begun)}, ()), ({"keys": ("no",)}, ()),
        ({"between": (begun + 99_000 * SECOND, None)}, ()), ({"between": middle, "keys": ("two",)}, (6,)),
        ({"between": (begun - 99_000 * SECOND, begun - 98_000 * SECOND)}, ()), ({"keys": ("",)}, range(0)),
    )  # fmt: skip
    with patch("holdfast.bounds.AUDIT_ROWS", rows):
        for asked, expected in cases:
            found, after = [], None
            while page := audit(driver, **asked, after=after):
                found, after = [*found, *page], page[-1].seq
            assert found == [entry for entry in whole if int(entry.target) in expected], asked
            assert audit(driver, **asked, limit=0) == []


@pytest.mark.spec("TEN-1")
def test_long_and_odd_texts_are_cut_and_not_refused(driver):
    """An act is noted, whatever somebody has put into its texts."""
    note(driver, act("x" * 300, target="é" * 300, request="a\0b\ud800", key_name="\U0001f600" * 300))
    (entry,) = audit(driver)
    assert (entry.action, entry.target) == ("x" * 255, "é" * 255)
    assert (entry.request, entry.key_name) == ("a?b?", "\U0001f600" * 255)


@pytest.mark.spec("TEN-1")
@pytest.mark.parametrize("wrong", [{"outcome": "maybe"}, {"target": None}, {"action": 7}], ids=str)
def test_a_row_that_is_none_is_refused(driver, wrong):
    with pytest.raises(UsageError):
        note(driver, act("fine"), AuditWrite(**{"tenant": "acme", "action": "start", **wrong}))
    with pytest.raises(UsageError):
        driver.run(driver.store.note_audit(["start"]))
    with pytest.raises(UsageError, match="at most 1,000 at once"):
        note(driver, *[act()] * 1001)
    assert audit(driver) == []


@pytest.mark.spec("TTL-1", "TEN-1")
def test_old_rows_are_purged_and_their_numbers_not_given_again(driver):
    note(driver, act("a"), act("b"))
    last = audit(driver)[0].seq
    driver.clock.turn(DAY)
    note(driver, act("c"))
    driver.clock.turn(89 * DAY - 1)
    assert driver.purge().audit == 0
    driver.clock.turn(1)
    assert (driver.purge().audit, driver.purge().total) == (2, 0)
    assert actions(driver) == ["c"]
    driver.clock.turn(DAY)
    assert driver.purge().audit == 1
    note(driver, act("d"))
    assert audit(driver)[0].seq > last + 1
