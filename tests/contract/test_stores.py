"""The contract suite of the package, over every store of ours."""

from __future__ import annotations

from holdfast.testing import contract
from tests.laws.stores import MAKERS

# One class a store: TestMemory, TestSqlite, TestSqliteInline, …
globals().update({f"Test{name.title().replace(' ', '')}": contract(make) for name, make in MAKERS.items()})
