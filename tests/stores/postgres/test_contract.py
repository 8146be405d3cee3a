"""The contract suite over Postgres. What it says of writes is tested twice more: for checkpoints that are not
alone, and for items that all go the long way.
"""

from __future__ import annotations

from holdfast.stores.postgres import plain
from holdfast.stores.postgres.calls import json_text
from holdfast.testing import contract
from servers.kept import Kept
from tests.stores.postgres.kit import make

WRITES = {
    "test_commit",
    "test_moves",
    "test_repeat",
    "test_lease",
    "test_segments",
    "test_review",
    "test_people",
}

PLANS = {"test_plans", "test_plan_ends", "test_plan_strays", "test_plan_timing", "test_plan_waits"}

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


def part(maker, name, modules):
    """Those tests of the suite that stand in these modules."""
    whole = contract(maker)
    members = {
        key: member
        for key, member in vars(whole).items()
        if not key.startswith("test_") or member.__func__.__module__.rpartition(".")[2] in modules
    }
    return type(name, whole.__bases__, members)


TestGathered = part(gathered, "TestGathered", WRITES)
TestLongWay = part(the_long_way, "TestLongWay", WRITES | PLANS)
