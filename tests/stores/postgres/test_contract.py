"""The contract suite on Postgres. Its tests of writes run twice more: with every checkpoint in a batch, and
with all items on the general path.
"""

from __future__ import annotations

from holdfast.stores.postgres.verbs import fast_rows
from holdfast.stores.postgres.verbs.calls import json_text
from holdfast.testing import contract
from servers.reused_store import ReusedStore
from tests.stores.contract_parts import PLANS, WRITES, part
from tests.stores.postgres.kit import make

TestPostgres = contract(make)


class Gathered(ReusedStore):
    """A store that commits a single checkpoint like many."""

    async def _is_done(self, row):
        return await self._call("commit", None, json_text([row]), None, None, False) is None


def gathered(clock, folder):
    return make(clock, folder, kind=Gathered)


class LongWay(ReusedStore):
    """A store without the fast path."""

    def _sorted(self, batch):
        found = fast_rows.Sorted()
        found.long, found.places.long = list(batch), list(range(len(batch)))
        return found


def the_long_way(clock, folder):
    return make(clock, folder, kind=LongWay)


TestGathered = part(gathered, "TestGathered", WRITES)
TestLongWay = part(the_long_way, "TestLongWay", WRITES | PLANS)
