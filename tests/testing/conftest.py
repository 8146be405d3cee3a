"""The kit is tested as its users use it: with the plugin, which an installation brings by itself."""

from __future__ import annotations

import pytest

from holdfast.testing.plugin import explore, rehearsal
from tests.testing.shop import Shop

__all__ = ["explore", "rehearsal"]


@pytest.fixture
def shop():
    return Shop()
