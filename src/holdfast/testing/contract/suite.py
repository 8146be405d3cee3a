"""The fixtures of the contract suite: a store, its clock, and a driver of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .driver import Clock, StoreDriver


class Suite:
    """The fixtures of each contract test. A subclass may bring its own fixture `store`."""

    make_store: Any

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def store(self, clock: Clock, tmp_path: Path) -> Any:
        """Return the store; a store that cannot be made is a failure, not a skip."""
        return self.make_store(clock, tmp_path)

    @pytest.fixture
    def driver(self, store: Any, clock: Clock) -> Iterator[StoreDriver]:
        driver = StoreDriver(store, clock)
        yield driver
        driver.close()
