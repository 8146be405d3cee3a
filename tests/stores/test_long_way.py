"""What the contract says of the writes of holders, on SQLite without the way on which many go at once."""

from __future__ import annotations

import pytest

from holdfast.stores.sqlite import plain
from tests.laws.stores import sqlite_inline
from tests.stores.parts import PLANS, WRITES, part


@pytest.fixture(autouse=True)
def nothing_is_plain(monkeypatch):
    monkeypatch.setattr(plain, "apply", lambda *_: {})


TestLongWay = part(sqlite_inline, "TestLongWay", WRITES | PLANS)
