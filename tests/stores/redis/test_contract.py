"""The contract suite on Redis or Valkey. Its tests of writes run once more without the script for plain
writes.

After each test, the sets of its namespace must have what the runs say: scripts for hot verbs change them by
themselves.
"""

from __future__ import annotations

from holdfast.testing import contract
from servers.redis_store import EmptiedStore, make
from tests.stores.contract_parts import WRITES, part
from verify.checks.redis_drift import drift


class Watched(EmptiedStore):
    """A store whose runs and sets are compared when it is closed."""

    async def close(self):
        found = []
        if self._connections.is_open:
            with self.client() as client:
                found = drift(client, self._names)
        await super().close()
        assert found == []


class LongWay(Watched):
    """A store in which the machine decides everything."""

    fast = False


def watched(clock, folder):
    return make(clock, folder, kind=Watched)


def the_long_way(clock, folder):
    return make(clock, folder, kind=LongWay)


TestRedis = contract(watched)
TestLongWay = part(the_long_way, "TestLongWay", WRITES)
