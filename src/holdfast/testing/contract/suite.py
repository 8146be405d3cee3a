"""The fixtures of the contract suite: a store, its clock, and a hand that drives both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .hand import Clock, Hand


class Suite:
    """What each test of the contract is given. A subclass may bring a fixture `store` of its own."""

    make_store: Any

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def store(self, clock: Clock, tmp_path: Path) -> Any:
        """A store that cannot be had is a failure, not a skip."""
        return self.make_store(clock, tmp_path)

    @pytest.fixture
    def hand(self, store: Any, clock: Clock) -> Iterator[Hand]:
        hand = Hand(store, clock)
        yield hand
        hand.close()
