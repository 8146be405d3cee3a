"""The queue in front of the commits of workers: tenants take turns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest

from holdfast.http.work.commits import ITEMS, Commits
from holdfast.lifecycle import Status
from holdfast.records import Answer, Item, Verdict
from holdfast.records.moves import RELEASE
from holdfast.world import RealWorld


class Store:
    """A store that applies all items, and keeps the tenants of each commit."""

    traits = SimpleNamespace(writers=1)

    def __init__(self):
        self.commits = []

    async def commit(self, items):
        await asyncio.sleep(0)
        self.commits.append([(one.tenant, one.number) for one in items])
        return [Verdict(answer=Answer.APPLIED, status=Status.LEASED) for _ in items]


def items(tenant, count, run=None):
    return [
        (Item(run=run or uuid4(), tenant=tenant, fence=1, number=n + 1, move=RELEASE), False)
        for n in range(count)
    ]


@pytest.mark.spec("TEN-2")
def test_a_tenant_does_not_wait_behind_all_items_of_another():
    async def played():
        store = Store()
        commits = Commits(store, RealWorld())
        many = asyncio.gather(*[commits.commit(items("acme", 1000)) for _ in range(5)])
        await asyncio.sleep(0)
        await commits.commit(items("beta", 10))
        done = len(store.commits)
        await many
        return done, store.commits

    done, commits = asyncio.run(played())
    assert done <= 2  # the one that was on its way, and the next
    assert [len(one) for one in commits[:-1]] == [ITEMS] * (len(commits) - 1)
    assert sum(map(len, commits)) == 5010


@pytest.mark.spec("LEASE-14")
def test_items_of_one_run_are_committed_one_after_the_other_in_their_order():
    async def played():
        store, run = Store(), uuid4()
        commits = Commits(store, RealWorld())
        mine, others = items("acme", 3, run), items("acme", 3)
        await asyncio.gather(commits.commit([*mine, *others]), commits.commit(items("beta", 1)))
        return [[number for tenant, number in one if tenant == "acme"] for one in store.commits]

    numbers = asyncio.run(played())
    assert [one[0] for one in numbers[:3]] == [1, 2, 3]
    assert sum(map(len, numbers)) == 6
