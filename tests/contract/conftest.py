"""One fixture over all stores. The suite itself names none of them."""

from __future__ import annotations

import pytest

from tests.contract.hand import Clock, Hand
from tests.laws.stores import MAKERS


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=sorted(MAKERS))
def store(request, clock, tmp_path):
    """A store that cannot be had is a failure, not a skip."""
    return MAKERS[request.param](clock, tmp_path)


@pytest.fixture
def hand(store, clock):
    hand = Hand(store, clock)
    yield hand
    hand.close()
