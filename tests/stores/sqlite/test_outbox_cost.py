"""Cost of the outbox: a blocked queue is not walked along, and a look writes nothing."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from holdfast.records import Ask, Item, Outbound, RelayAsk, Relayed, StepWrite
from holdfast.records.moves import CHECKPOINT
from holdfast.stores.memory import outbox as memory
from holdfast.stores.sqlite import outbox
from tests.stores.sqlite.files import TYPE, new_run, with_store

FILL = """
insert into workflow_outbox (id, run_id, sink, key, behind, status, next_at, created_at)
with recursive n (i) as (select 1 union all select i + 1 from n where i < :count)
select 'fill' || :salt || i, '018bcfe5-0000-7000-8000-000000000001', :sink, :key, :behind, :status, :next_at,
    0
from n
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def steps_taken(store, work):
    """Return how many instructions SQLite's virtual machine executes for a read."""
    counted = []
    db = store._reader
    db.connection.set_progress_handler(lambda: bool(counted.append(1)), 1)
    try:
        work(db)
    finally:
        db.connection.set_progress_handler(None)
    return len(counted)


async def sent(store, *messages):
    await store.start([new_run()])
    (claim,) = await store.claim(Ask(worker="w", types=(TYPE,), limit=1))
    step = StepWrite(key="post", output="1")
    item = Item(run=claim.id, fence=claim.fence, number=1, move=CHECKPOINT, steps=(step,), outbox=messages)
    assert [one.answer for one in await store.commit([item])] == ["applied"]


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_relay_does_not_pay_for_what_it_cannot_take(path):
    """Sent ones, those of other sinks, those that back off, and 12,500 behind one that is held."""

    async def story(store):
        ask = RelayAsk(relay="r", sinks=("mail",), limit=8)
        looks = (
            lambda db: outbox.due(db, store._clock(), ask, 1),
            lambda db: outbox.relay_at(db, ("mail",), None, webhooks=True),
        )
        await sent(store, Outbound(id="m1", sink="mail", key="k"), Outbound(id="m2", sink="mail"))
        (held, _) = await store.relay(ask)
        before = [steps_taken(store, look) for look in looks]
        later = store._clock() + 10**12
        for salt, row in enumerate(
            (
                {"sink": "mail", "key": "k", "behind": 1, "status": "pending", "next_at": 0},
                {"sink": "mail", "key": None, "behind": 0, "status": "sent", "next_at": 0},
                {"sink": "mail", "key": None, "behind": 0, "status": "dead", "next_at": 0},
                {"sink": "mail", "key": None, "behind": 0, "status": "pending", "next_at": later},
                {"sink": "pager", "key": None, "behind": 0, "status": "pending", "next_at": 0},
            )
        ):
            await store._write(
                lambda db, _, row=row, salt=salt: db.run(FILL, {"count": 12_500, "salt": salt, **row})
            )
        assert max(steps_taken(store, look) for look in looks) <= max(before) + 10
        commits = store._transactor.commits
        assert await store.relay(ask) == []
        assert store._transactor.commits == commits
        assert await store.relayed([Relayed(id="m1", fence=held.fence, answer="sent")]) == [True]
        (following,) = await store.relay(ask)
        assert (following.id, following.key) == ("fill01", "k")

    with_store(path, story)


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_relay_of_one_tenant_does_not_walk_along_the_messages_of_others(path):
    """12,500 of them, due before its own."""

    async def story(store):
        ask = RelayAsk(relay="r", sinks=("mail",), tenants=("acme",), limit=8)
        looks = (
            lambda db: outbox.due(db, store._clock(), ask, 1),
            lambda db: outbox.relay_at(db, ("mail",), ("acme",), webhooks=True),
        )
        before = [steps_taken(store, look) for look in looks]
        row = {"sink": "mail", "key": None, "behind": 0, "status": "pending", "next_at": 0}
        await store._write(lambda db, _: db.run(FILL, {"count": 12_500, "salt": 0, **row}))
        assert max(steps_taken(store, look) for look in looks) <= max(before) + 10
        assert await store.relay(ask) == []
        assert await store.relay_at(("mail",), tenants=("acme",)) is None

    with_store(path, story)


@pytest.mark.slow
def test_in_memory_neither_a_line_nor_what_was_sent_is_walked_along():
    """5,000 of one key go out one after another, while as many runs are asked whether they hold any."""
    post, ask = memory.Post(), RelayAsk(relay="r", sinks=("mail",))
    run, other = UUID(int=1), UUID(int=2)
    messages = [Outbound(id=f"m{n}", sink="mail", key="k") for n in range(5_000)]
    memory.put(post, messages, "default", run, 0)
    began = time.perf_counter()
    for sent in messages:
        assert (post.holds(run), post.holds(other)) == (True, False)
        (parcel,) = memory.relay(post, ask, 0)
        assert parcel.id == sent.id
        memory.relayed(post, [Relayed(id=parcel.id, fence=parcel.fence, answer="sent")], 0)
    assert not post.holds(run)
    assert memory.relay_at(post, ("mail",), None, webhooks=True) is None
    assert time.perf_counter() - began < 2


@pytest.mark.slow
@pytest.mark.spec("OUT-1")
def test_a_backlog_is_not_counted_to_its_end(path):
    """Ten times as many messages cost the same, pending or dead."""

    async def story(store):
        await sent(store, Outbound(id="m1", sink="mail"))
        costs = []
        for salt, count in enumerate((10_000, 100_000)):
            for status in ("pending", "dead"):
                row = {"sink": "mail", "key": None, "behind": 0, "status": status, "next_at": 0}
                await store._write(
                    lambda db, _, row=row, salt=f"{status}{salt}", count=count: db.run(
                        FILL, {**row, "salt": salt, "count": count}
                    )
                )
            costs.append(steps_taken(store, outbox.backlog))
        assert costs[1] < 1.01 * costs[0]
        (told,) = await store.backlog()
        assert (told.pending, told.dead, told.oldest_at) == (10_000, 10_000, 0)

    with_store(path, story)
