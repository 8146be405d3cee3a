"""What the contract says of holders and of waits, on SQLite without the ways on which many go at once."""

from __future__ import annotations

import pytest

from holdfast.stores.sqlite import plain, sleeps
from tests.laws.stores import sqlite_inline
from tests.stores.parts import PLANS, WAITS, WRITES, part


@pytest.fixture(autouse=True)
def nothing_is_plain(monkeypatch):
    monkeypatch.setattr(plain, "apply", lambda *_: {})
    monkeypatch.setattr(sleeps, "wake", lambda *_: set())


TestLongWay = part(sqlite_inline, "TestLongWay", WRITES | PLANS | WAITS)
