"""Paths are found by their segments."""

from __future__ import annotations

import pytest

from holdfast.http.routing import PathTable, encoded_path

TABLE = PathTable({
    "/runs": "list",
    "/runs/batch": "batch",
    "/runs/{run}": "get",
    "/runs/{run}/steps": "steps",
    "/limits/{scope}/{name}": "limit",
    "/limits/key/{key}/pause": "pause",
})  # fmt: skip


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/runs", ("list", {})),
        ("/runs/batch", ("batch", {})),
        ("/runs/7", ("get", {"run": "7"})),
        ("/runs/batch/steps", ("steps", {"run": "batch"})),
        ("/limits/key/mail", ("limit", {"scope": "key", "name": "mail"})),
        ("/limits/key/mail/pause", ("pause", {"key": "mail"})),
        ("/limits/key/a%2Fb%25", ("limit", {"scope": "key", "name": "a/b%"})),
        ("/runs/", None),
        ("/runs//steps", None),
        ("/Runs", None),
        ("/runs/%ff", None),
        ("", None),
        ("/" * 100, None),
    ],
)
def test_a_literal_segment_goes_before_a_parameter(path, found):
    """A part of a name may be a slash, if it is encoded."""
    assert TABLE.find(path) == found


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"path": "/runs", "raw_path": b"/runs"}, "/runs"),
        ({"path": "/a/b", "raw_path": b"/a%2Fb?x=1"}, "/a%2Fb"),
        ({"path": "/my api/runs", "raw_path": b"/my%20api/runs", "root_path": "/my api"}, "/runs"),
        ({"path": "/apis/runs", "raw_path": b"/apis/runs", "root_path": "/api"}, "/apis/runs"),
        ({"path": "/runs/é"}, "/runs/%C3%A9"),
    ],
)
def test_the_path_is_taken_as_it_was_sent_without_the_prefix(scope, path):
    """A server that gives no raw path is understood too."""
    assert encoded_path(scope) == path
