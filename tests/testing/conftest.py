"""Fixtures of the plugin: the kit is tested as its users use it."""

from __future__ import annotations

import pytest

from holdfast.testing.plugin import explore, rehearsal
from tests.testing.shop import Shop

__all__ = ["explore", "rehearsal"]


@pytest.fixture
def shop():
    return Shop()
