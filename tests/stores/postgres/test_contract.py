"""The contract suite over Postgres; what it says of writes once more, for checkpoints that are not alone."""

from __future__ import annotations

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

TestPostgres = contract(make)


class Gathered(Kept):
    """A lone checkpoint goes the way of many."""

    async def _is_done(self, row):
        return await self._call("commit", None, json_text([row]), None, None, False) is None


def gathered(clock, folder):
    return make(clock, folder, kind=Gathered)


_whole = contract(gathered)
TestGathered = type(
    "TestGathered",
    _whole.__bases__,
    {
        name: member
        for name, member in vars(_whole).items()
        if not name.startswith("test_") or member.__func__.__module__.rpartition(".")[2] in WRITES
    },
)
