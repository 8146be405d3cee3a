"""The contract suite of the package, over every store of ours that needs no server.

SQLite without a thread of its own is left to the long form: tests of the engine use it everywhere.
"""

from __future__ import annotations

from holdfast.testing import contract
from tests.laws.effort import LONG
from tests.laws.stores import memory, sqlite, sqlite_inline

TestMemory = contract(memory)
TestSqlite = contract(sqlite)
if LONG:
    TestSqliteInline = contract(sqlite_inline)
