"""The contract suite over Postgres. What it says of writes is tested twice more: for checkpoints that are not
alone, and for items that all go the long way.
"""

from __future__ import annotations

from holdfast.stores.postgres import plain
from holdfast.stores.postgres.calls import json_text
from holdfast.testing import contract
from servers.kept import Kept
from tests.stores.parts import PLANS, WRITES, part
from tests.stores.postgres.kit import make

TestPostgres = contract(make)


class Gathered(Kept):
    """A lone checkpoint goes the way of many."""

    async def _is_done(self, row):
        return await self._call("commit", None, json_text([row]), None, None, False) is None


def gathered(clock, folder):
    return make(clock, folder, kind=Gathered)


class LongWay(Kept):
    """Nothing is plain."""

    def _sorted(self, batch):
        found = plain.Sorted()
        found.long, found.places.long = list(batch), list(range(len(batch)))
        return found


def the_long_way(clock, folder):
    return make(clock, folder, kind=LongWay)


TestGathered = part(gathered, "TestGathered", WRITES)
TestLongWay = part(the_long_way, "TestLongWay", WRITES | PLANS)
