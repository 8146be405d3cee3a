"""Group commit: one queue for all runs, and no run can stop it for the others."""

from __future__ import annotations

import asyncio
from uuid import UUID

from holdfast.engine.committer import Committer
from holdfast.lifecycle import Move, Status
from holdfast.records import Item, Traits, Verdict
from tests.engine.faulty import Faulty, delay_reply, lose_reply


def item(n):
    return Item(run=UUID(int=n), fence=1, number=1, move=Move.RELEASE)


class Store:
    """Answers every item, and remembers the batches."""

    traits = Traits()

    def __init__(self):
        self.batches = []

    async def commit(self, batch):
        self.batches.append([one.run.int for one in batch])
        await asyncio.sleep(1)
        return [Verdict(answer="applied", status=Status.PENDING) for _ in batch]


async def test_what_gathers_while_a_commit_is_on_its_way_shares_the_next(world):
    store, answered = Store(), []
    committer = Committer(store, world)
    committer.put(item(1), answered.append)
    await asyncio.sleep(0.5)
    for n in (2, 3, 4):
        committer.put(item(n), answered.append)
    await committer.drain()
    assert store.batches == [[1], [2, 3, 4]]
    assert len(answered) == 4


async def test_items_of_one_turn_share_a_commit(world):
    store = Store()
    committer = Committer(store, world)
    for n in (1, 2, 3):
        committer.put(item(n), lambda _: None)
    await committer.drain()
    assert store.batches == [[1, 2, 3]]


async def test_a_run_that_cannot_take_its_answer_does_not_stop_the_others(world, caplog):
    committer, answered = Committer(Store(), world), []
    committer.put(item(1), lambda _: 1 / 0)
    committer.put(item(2), answered.append)
    await committer.drain()
    committer.put(item(3), answered.append)
    async with asyncio.timeout(10):
        await committer.drain()
    assert len(answered) == 2
    assert "cannot take the answer" in caplog.text


async def test_an_item_that_is_busy_is_sent_again(world):
    class Busy(Store):
        async def commit(self, batch):
            answers = await super().commit(batch)
            first = len(self.batches) == 1
            return [Verdict(answer="busy", status=Status.LEASED) if first and one.run.int == 2 else answer
                    for one, answer in zip(batch, answers, strict=True)]  # fmt: skip

    store, answered = Busy(), []
    committer = Committer(store, world)
    for n in (1, 2, 3):
        committer.put(item(n), answered.append)
    await committer.drain()
    assert store.batches == [[1, 2, 3], [2]]
    assert [one.answer for one in answered] == ["applied"] * 3


async def test_a_reply_that_is_lost_or_late_is_waited_for(world):
    faulty, answered = Faulty(Store()), []
    faulty.plan("commit", 1, lose_reply)
    faulty.plan("commit", 2, delay_reply(5))
    committer = Committer(faulty, world)
    committer.put(item(1), answered.append)
    await committer.drain()
    assert [one.answer for one in answered] == ["applied"]
    assert faulty.inner.batches == [[1], [1]]
