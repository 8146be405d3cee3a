"""The same operations under the same clock end in the same state on memory and on Postgres."""

from __future__ import annotations

import pytest

from tests.laws.effort import LONG, often
from tests.laws.test_stores_agree import StoresAgree
from tests.stores.postgres.kit import make


class PostgresAgrees(StoresAgree):
    """Random histories of a few runs, on memory and on Postgres."""

    def other(self, clock):
        return make(clock)


PostgresAgrees.TestCase.settings = often(5, 30)


@pytest.mark.spec("MOVE-4", "MOVE-5", "MOVE-7")
@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 300)
class TestPostgresAgrees(PostgresAgrees.TestCase):
    """Every history is the same on memory and on Postgres."""
