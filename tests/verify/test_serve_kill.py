"""serve-kill: its checks find what they look for, and its client reads events as they are sent."""

from __future__ import annotations

from uuid import UUID

import pytest

from verify.server_crashes.client import Event, _event
from verify.server_crashes.load import Seen
from verify.server_crashes.serve_kill import _breaches

ONE, TWO = UUID(int=1), UUID(int=2)


def breached(runs, rows, /, **seen):
    """Return the names of the promises that were breached."""
    good = {"ids": {"a": {str(ONE)}}, "created": {"a": 1}, "runs": {str(ONE): [1, 2]}, "all_events": [[1, 2]]}
    found = _breaches(Seen(**{**good, **seen}), runs, rows, rows[-1][0] if rows else 0)
    return [title.partition(" ")[0] for title, cases in found if cases]


@pytest.mark.parametrize(
    ("runs", "seen", "breaches"),
    [
        ({ONE: "a"}, {}, []),
        ({ONE: "b"}, {}, ["S1", "S5"]),
        ({ONE: "a", TWO: "a"}, {"ids": {"a": {str(TWO)}}}, ["S2"]),
        ({ONE: "a"}, {"ids": {"a": {str(ONE), str(TWO)}}}, ["S3"]),
        ({ONE: "a"}, {"created": {"a": 2}}, ["S4"]),
        ({ONE: "a", TWO: "b"}, {}, ["S5"]),
        ({ONE: "a"}, {"runs": {str(ONE): [1]}}, ["S6"]),
        ({ONE: "a"}, {"runs": {str(ONE): [1, 1, 2]}}, ["S6"]),
        ({ONE: "a"}, {"runs": {str(ONE): [2, 1]}}, ["S6"]),
        ({ONE: "a"}, {"all_events": [[1, 2], [2]]}, ["S7"]),
        ({ONE: "a"}, {"wrong": ["GET /runs: 500"]}, ["S8"]),
    ],
)
def test_every_breach_is_found(runs, seen, breaches):
    """Each difference between clients and store breaches its promise, and no other."""
    assert breached(runs, [(1, ONE), (2, ONE)], **seen) == breaches


def test_events_are_read_and_comments_are_not():
    """An event has a number, the end has a name; comments and retry are none."""
    assert _event('id: 7\ndata: {"a":1}') == Event("", "7", {"a": 1})
    assert _event('event: end\ndata: {"status":"failed"}') == Event("end", "", {"status": "failed"})
    assert _event(": still here") is None
    assert _event("retry: 1000") is None
