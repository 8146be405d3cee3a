"""Group commit: one queue for all runs, and no run can block the queue for the others."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast.bounds import MIB
from holdfast.engine.commit.committer import Committer
from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import Answer, Item, Traits, Verdict
from holdfast.records.moves import RELEASE, Complete
from holdfast.testing.faulty import Faulty, delay_reply, lose_reply


def item(n):
    return Item(run=UUID(int=n), fence=1, number=1, move=RELEASE)


class Store:
    """Answers every item, and records the batches."""

    traits = Traits()

    def __init__(self):
        self.batches = []

    async def commit(self, batch):
        self.batches.append([one.run.int for one in batch])
        await asyncio.sleep(1)
        return [Verdict(answer=Answer.APPLIED, status=Status.PENDING) for _ in batch]


async def test_items_queued_during_a_commit_share_the_next_commit(world):
    store, answered = Store(), []
    committer = Committer(store, world)
    committer.put(item(1), answered.append)
    await asyncio.sleep(0.5)
    for n in (2, 3, 4):
        committer.put(item(n), answered.append)
    await committer.drain()
    assert store.batches == [[1], [2, 3, 4]]
    assert len(answered) == 4


async def test_items_of_one_loop_turn_share_a_commit(world):
    store = Store()
    committer = Committer(store, world)
    for n in (1, 2, 3):
        committer.put(item(n), lambda _: None)
    await committer.drain()
    assert store.batches == [[1, 2, 3]]


async def test_an_error_in_one_callback_does_not_stop_the_other_runs(world, caplog):
    committer, answered = Committer(Store(), world), []
    committer.put(item(1), lambda _: 1 / 0)
    committer.put(item(2), answered.append)
    await committer.drain()
    committer.put(item(3), answered.append)
    async with asyncio.timeout(10):
        await committer.drain()
    assert len(answered) == 2
    assert "failed to handle the answer" in caplog.text


async def test_a_busy_item_is_retried(world):
    class Busy(Store):
        async def commit(self, batch):
            answers = await super().commit(batch)
            first = len(self.batches) == 1
            busy = Verdict(answer=Answer.BUSY, status=Status.LEASED)
            return [busy if first and one.run.int == 2 else answer
                    for one, answer in zip(batch, answers, strict=True)]  # fmt: skip

    store, answered = Busy(), []
    committer = Committer(store, world)
    for n in (1, 2, 3):
        committer.put(item(n), answered.append)
    await committer.drain()
    assert store.batches == [[1, 2, 3], [2]]
    assert [one.answer for one in answered] == ["applied"] * 3


class Picky(Store):
    """Refuses every batch with an item of one run, and answers all other batches."""

    def __init__(self, writers=1, bad=(1,)):
        super().__init__()
        self.traits, self.bad, self.asked = Traits(writers=writers), bad, 0

    async def commit(self, batch):
        answers = await super().commit(batch)
        if any(one.run.int in self.bad for one in batch):
            raise Unavailable("no answer in time")
        return answers

    async def due(self, types, tenants=None):
        self.asked += 1


def large(n):
    return Item(run=UUID(int=n), fence=1, number=1, move=Complete(result='"' + "x" * MIB + '"'))


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("size", [item, large])
@pytest.mark.parametrize("beside", [(), (2, 3, 4)], ids=["alone", "in a batch"])
async def test_an_item_that_the_store_cannot_accept_delays_no_other(world, writers, size, beside):
    store, answered = Picky(writers), []
    committer = Committer(store, world)
    for n in (1, *beside):
        committer.put(size(n), lambda _, n=n: answered.append(n))
    await asyncio.sleep(300)
    for n in (8, 9):
        committer.put(size(n), lambda _, n=n: answered.append(n))
    await asyncio.sleep(60)
    assert sorted(answered) == [*beside, 8, 9]
    tried = store.batches.count([1])
    await asyncio.sleep(60)
    assert 5 <= store.batches.count([1]) - tried <= 20  # retried now and then
    store.bad = ()
    await asyncio.sleep(30)
    assert answered[-1] == 1


async def test_items_that_always_fail_do_not_block_busy_items(world):
    class Busy(Picky):
        async def commit(self, batch):
            answers = await super().commit(batch)
            busy = self.batches.count([9]) < 3
            return [Verdict(answer=Answer.BUSY, status=Status.LEASED) if busy and one.run.int == 9 else answer
                    for one, answer in zip(batch, answers, strict=True)]  # fmt: skip

    store, answered = Busy(bad=(1, 2, 3, 4)), []
    committer = Committer(store, world)
    for n in (1, 2, 3, 4, 5):
        committer.put(item(n), lambda _, n=n: answered.append(n))
    await asyncio.sleep(300)
    committer.put(item(9), lambda _: answered.append(9))
    await asyncio.sleep(15)
    assert answered == [5, 9]


@pytest.mark.parametrize("reads", [True, False])
async def test_while_a_store_accepts_nothing_items_stay_in_batches(world, reads):
    """With a full disk or a server that is down no item is at fault: items are not sent alone for long."""

    class Down(Picky):
        async def due(self, types, tenants=None):
            if not reads:
                raise Unavailable("down")

    store, answered = Down(bad=range(100)), []
    committer = Committer(store, world)
    for n in range(20):
        committer.put(item(n), answered.append)
    await asyncio.sleep(3600)
    store.bad = ()
    begun = len(store.batches)
    await asyncio.sleep(60)
    assert len(answered) == 20
    assert not reads or len(store.batches) - begun <= 25
    assert reads or len(store.batches) - begun == 1


async def test_the_committer_waits_for_a_lost_or_late_reply(world):
    faulty, answered = Faulty(Store()), []
    faulty.plan("commit", 1, lose_reply)
    faulty.plan("commit", 2, delay_reply(5))
    committer = Committer(faulty, world)
    committer.put(item(1), answered.append)
    await committer.drain()
    assert [one.answer for one in answered] == ["applied"]
    assert faulty.inner.batches == [[1], [1]]
