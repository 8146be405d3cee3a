"""The contract of holders, plans and waits on SQLite with the fast paths switched off."""

from __future__ import annotations

import pytest

from holdfast.stores.sqlite import fast_writes
from holdfast.stores.sqlite.chores import timeouts
from tests.laws.stores import sqlite_inline
from tests.stores.contract_parts import PLANS, WAITS, WRITES, part


@pytest.fixture(autouse=True)
def no_fast_paths(monkeypatch):
    monkeypatch.setattr(fast_writes, "apply", lambda *_: {})
    monkeypatch.setattr(timeouts, "wake_sleeps", lambda *_: set())


TestWithoutFastPaths = part(sqlite_inline, "TestWithoutFastPaths", WRITES | PLANS | WAITS)
