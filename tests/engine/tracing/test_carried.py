"""The stored trace: a valid traceparent is read, anything else is as if there were none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.tracing.carried import Carried, carried, checked, parsed

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"

pytestmark = pytest.mark.spec("OPS-4")


@pytest.mark.parametrize(
    ("header", "stored"),
    [
        (GOOD, GOOD),
        (f" {GOOD}\t", GOOD),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", GOOD),  # only `sampled` is known here
        (f"01-{TRACE}-{SPAN}-01-more", GOOD),  # a later version
        (None, ""),
        ("", ""),
        (f"ff-{TRACE}-{SPAN}-01", ""),
        (f"00-{TRACE}-{SPAN}-01-more", ""),
        (f"00-{TRACE.upper()}-{SPAN}-01", ""),
        (f"00-{'0' * 32}-{SPAN}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE}-{SPAN}", ""),
        (f"00-{TRACE}-{SPAN}-1", ""),
        (f"{GOOD}\n", ""),
        (f"{GOOD}, {GOOD}", ""),
        ("00-" + "\u0660" * 32 + f"-{SPAN}-01", ""),
        (f"01-{TRACE}-{SPAN}-01-" + "x" * 1000, ""),
    ],
)
def test_a_header_is_stored_as_a_traceparent_or_ignored(header, stored):
    assert checked(header) == stored


@pytest.mark.slow
@given(st.text(max_size=200) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{16}-[0-9a-f]{2}( .*)?"))
def test_whatever_is_stored_can_be_read(text):
    """Only a valid trace is read, and it is the same when it is stored again."""
    found = carried(text)
    assert found == Carried() or parsed(found.parent) is not None
    assert carried(str(found)) == found


def test_what_an_execution_leaves_is_read_by_the_next_one():
    left = Carried(GOOD, f"00-{TRACE}-1111111111111111-01", 12)
    assert carried(str(left)) == left
    assert carried(f"{GOOD} nonsense 12") == Carried()
    assert len(str(left)) < 200
