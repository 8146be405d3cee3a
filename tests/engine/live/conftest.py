"""Fixtures of tests of live reads: an open store that is watched, and `Live` on it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.live.live import Live
from tests.engine.live.kit import Watched


@pytest.fixture
def store(store):
    asyncio.run(store.open())
    return Watched(store)


@pytest.fixture
def live(store, world):
    return Live(store, world)
