"""Names of workflow types: what counts as a version."""

from __future__ import annotations

import pytest

from holdfast.engine.definitions import bare, has_version


@pytest.mark.parametrize(
    ("name", "is_versioned"),
    [
        ("shop.order.v1", True),
        ("shop.order.v12", True),
        ("shop.order", False),
        ("shop.order.v", False),
        ("shop.order.vx", False),
        ("42", False),
        ("shop.order.v²", False),
        ("shop.order.v\u0661", False),
        ("", False),
    ],
)
def test_a_version_is_a_dot_a_v_and_ascii_digits(name, is_versioned):
    assert has_version(name) is is_versioned
    assert bare(name) == (name.rpartition(".v")[0] if is_versioned else name)
