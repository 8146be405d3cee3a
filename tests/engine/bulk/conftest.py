"""Bulk operations run on Redis too: they list, count and change many runs."""

from __future__ import annotations

import pytest

from tests.engine.conftest import KINDS, made


@pytest.fixture(params=[*KINDS, "redis"])
def store(request, world):
    return made(request, world)
