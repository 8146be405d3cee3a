"""Commits are bounded in bytes: neither batches nor items grow without limit."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from holdfast import Backoff, Status, TooLarge
from holdfast.bounds import VALUE_BYTES
from holdfast.engine.commit.committer import BESIDE_MAX, Committer
from holdfast.lifecycle import Move, StepStatus
from holdfast.records import Answer, Item, NewEvent, NewRun, PlanStep, StepWrite, TrailWrite, Traits, Verdict
from holdfast.records.moves import CHECKPOINT, PARK, Advance, BeginPlan, Complete, Fail, Retry
from holdfast.records.sizes import ROW, item_bytes, start_bytes
from holdfast.testing.faulty import Faulty
from tests.engine.kit import keys, outcome, until

SMALL_BATCH = 16 * 1024  # smaller than the real bounds, to be fast
LARGE = '"' + "x" * (SMALL_BATCH // 8) + '"'


@pytest.fixture(autouse=True)
def small_batch_limits(monkeypatch):
    monkeypatch.setattr("holdfast.engine.commit.batches.BATCH_BYTES", SMALL_BATCH)
    monkeypatch.setattr("holdfast.engine.commit.batches.LARGE_BYTES", SMALL_BATCH // 8)
    monkeypatch.setattr("holdfast.engine.commit.committer.FULL_BYTES", SMALL_BATCH * 8)
    monkeypatch.setattr("holdfast.engine.commit.journal.BATCH_BYTES", SMALL_BATCH)


def item(n, result="null"):
    return Item(run=UUID(int=n), fence=1, number=1, move=Complete(result=result))


class Store:
    """Answers every item after a second, and records the batches."""

    def __init__(self, writers=1):
        self.traits, self.batches = Traits(writers=writers), []

    async def commit(self, batch):
        self.batches.append([one.run.int for one in batch])
        self.bytes = max(getattr(self, "bytes", 0), sum(map(item_bytes, batch)))
        await asyncio.sleep(1)
        return [Verdict(answer=Answer.APPLIED, status=Status.SUCCEEDED) for _ in batch]


class WeighedStore(Faulty):
    """Records the number of bytes of each commit."""

    def __init__(self, store):
        super().__init__(store)
        self.items = []

    def fault_for(self, verb, args):
        if verb in {"commit", "transact"}:
            self.items += [
                (one.move.verb, item_bytes(one)) for one in (args[0] if verb == "commit" else args[:1])
            ]
        return super().fault_for(verb, args)


async def test_a_batch_is_bounded_in_bytes(world):
    store = Store()
    committer = Committer(store, world)
    for n in range(100):
        committer.put(item(n, '"' + '\\"' * 255 + '"'), lambda _: None)  # as sent: 1 KiB
    await committer.drain()
    assert store.bytes <= SMALL_BATCH
    assert len(store.batches) == 7
    assert [n for batch in store.batches for n in batch] == list(range(100))


async def test_a_small_item_waits_for_at_most_one_commit_of_large_items(world):
    store, answered = Store(), []
    committer = Committer(store, world)
    for n in range(100):
        committer.put(item(n, LARGE), lambda _: None)
    await asyncio.sleep(0.5)
    for n in (100, 101):
        committer.put(item(n), answered.append)
    await asyncio.sleep(1.6)
    assert len(answered) == 2
    assert store.batches[1] == [100, 101]
    await committer.drain()
    assert sorted(n for batch in store.batches for n in batch) == list(range(102))


async def test_large_items_do_not_wait_forever_behind_small_items(world):
    store = Store()
    committer = Committer(store, world)
    for n in range(1, 5):
        committer.put(item(n), lambda _, n=n: committer.put(item(n + 10), lambda _: None))
    committer.put(item(0, LARGE), lambda _: None)
    await committer.drain()
    assert [0] in store.batches[:2]


async def test_one_of_several_writers_is_reserved_for_small_items(world):
    store, answered = Store(writers=2), []
    committer = Committer(store, world)
    for n in range(100):
        committer.put(item(n, LARGE), lambda _: None)
    await asyncio.sleep(0.5)
    assert len(store.batches) == 1
    committer.put(item(100), answered.append)
    await asyncio.sleep(0.1)
    assert store.batches[1] == [100]
    await committer.drain()
    assert len(answered) == 1
    assert sorted(n for batch in store.batches for n in batch) == list(range(101))


async def test_a_full_queue_allows_few_claims_but_some(world):
    committer = Committer(Store(), world)
    assert committer.room(100) == 100
    for n in range(8 * 8 + 1):
        committer.put(item(n, LARGE), lambda _: None)
    assert committer.room(100) == BESIDE_MAX
    assert committer.room(3) == 3
    for n in range(BESIDE_MAX + 1):
        committer.begun(UUID(int=n))
    assert committer.room(100) == 0
    committer.ended(UUID(int=0))
    committer.ended(UUID(int=1))
    assert committer.room(100) == 1
    await committer.drain()
    assert committer.room(100) == 100


VALUE = SMALL_BATCH // 2


def value(n):
    return str(n) + "x" * (VALUE - 100)


@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_the_buffered_steps_of_one_run_go_in_several_commits(app, checkpoint):
    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        async def one(n):
            ctx.emit("made", n)
            return value(n)

        found = await asyncio.gather(*[ctx.step(f"s{n}", one, n) for n in range(12)])
        for n in range(12):
            ctx.emit("done", value(n), name=f"e{n}")
        return [one[:2] for one in found]

    app.store = store = WeighedStore(app.store)
    run = await app.start(order)
    async with app.worker():
        assert await run.result(60) == [value(n)[:2] for n in range(12)]
    assert max(size for _, size in store.items) <= SMALL_BATCH + VALUE
    assert [move for move, _ in store.items][-1] is Move.COMPLETE
    names = await keys(app, run)
    assert sorted(names[:12]) == sorted(f"s{n}" for n in range(12))
    assert names[12:] == [f"e{n}" for n in range(12)]


async def test_each_event_is_committed_with_the_step_that_sends_it(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(12):
            ctx.emit("done", value(n), name=f"e{n}")
        await ctx.step("end", lambda: None)

    seen = []

    class Watched(WeighedStore):
        def fault_for(self, verb, args):
            if verb == "commit":
                seen.extend((one.steps, one.events) for one in args[0])
            return super().fault_for(verb, args)

    app.store = Watched(app.store)
    run = await app.start(order)
    async with app.worker():
        await run.result(60)
    assert len(seen) > 3
    for steps, events in seen:
        sent = [step.key for step in steps if step.key.startswith("e") and step.key != "end"]
        assert [event.id.rpartition(":")[2] for event in events] == sent


async def test_failing_and_parking_runs_record_everything_buffered(app):
    @app.workflow("shop.fails.v1", retry=Backoff.fixed(1, attempts=1))
    async def fails(ctx):
        for n in range(6):
            ctx.emit("done", value(n), name=f"e{n}")
        raise ValueError("no")

    @app.workflow("shop.parks.v1")
    async def parks(ctx):
        for n in range(6):
            ctx.emit("done", value(n), name=f"e{n}")
        return (await ctx.await_event("go")).payload

    app.store = store = WeighedStore(app.store)
    failing, parking = await app.start(fails), await app.start(parks)
    async with app.worker():
        assert (await outcome(app, failing))[0] == "failed"
        await until(app, parking, Status.WAITING)
        await app.emit("go", 1)
        assert await parking.result(60) == 1
    assert await keys(app, failing) == [f"e{n}" for n in range(6)]
    assert (await keys(app, parking))[:6] == [f"e{n}" for n in range(6)]
    assert max(size for _, size in store.items) <= SMALL_BATCH + VALUE


async def test_the_bytes_that_one_step_sends_and_logs_are_bounded(app, monkeypatch):
    monkeypatch.setattr("holdfast.engine.outbox.messages.SENT_BYTES", 10_000 + 10 * ROW)
    monkeypatch.setattr("holdfast.engine.outbox.messages.LOGGED_BYTES", 5_000 + 5 * ROW)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        refusals = []

        def fill(emit_one, *args, **fields):
            for n in range(12):
                try:
                    emit_one(*args, **fields)
                except TooLarge as error:
                    refusals.append((n, str(error)))
                    return

        await ctx.step("emits", fill, ctx.emit, "much", "x" * 900)
        await ctx.step("sends", fill, ctx.send, "mail", "x" * 900)
        fill(ctx.log, "much", text="x" * 900)
        await ctx.step("then", lambda: None)
        fill(ctx.log, "much", text="x" * 900)
        return refusals

    run = await app.start(order)
    async with app.worker():
        numbers, words = zip(*(await run.result(60)), strict=True)
    assert numbers == (10, 10, 5, 5)
    assert words[0].startswith("step 'emits' sends and logs 13,")
    assert "the limit is 6,500: log less" in words[2]


@pytest.mark.slow
@pytest.mark.spec("START-5")
async def test_a_large_start_many_is_recorded_in_slices(app, monkeypatch):
    @app.workflow("shop.order.v1")
    async def order(ctx, params): ...

    monkeypatch.setattr("holdfast.engine.app.client.STARTS_MAX", 5)
    slices = []

    class Watched(Faulty):
        def fault_for(self, verb, args):
            if verb == "start":
                slices.append([start_bytes(one) for one in args[0]])
            return super().fault_for(verb, args)

    app.store = Watched(app.store)
    quotes = '"' * (VALUE_BYTES // 2 - 1)  # as JSON text 4 MiB, and twice as much inside another one
    handles = await app.start_many(
        [(order, one, {"key": str(n)}) for n, one in enumerate([quotes] * 2 + [1] * 7)]
    )
    assert [handle.created for handle in handles] == [True] * 9
    assert [len(one) for one in slices] == [1, 1, 5, 2]
    assert max(map(sum, slices)) <= 2 * VALUE_BYTES + 1
    assert (await app.store.stats()).by_status["pending"] == 9
    again = await app.start_many([(order, 1, {"key": str(n)}) for n in range(2, 12)])
    assert [handle.created for handle in again] == [False] * 7 + [True] * 3


def test_the_size_of_an_item_counts_everything_in_it():
    small = Item(run=UUID(int=1), fence=1, number=1, move=CHECKPOINT)
    step = StepWrite(key="a", status=StepStatus.SUCCEEDED, output='"\\""')
    row = TrailWrite("log", '""')
    with_rows = msgspec.structs.replace(
        small, trail=(row,), events=(NewEvent(id="a", topic="t", payload="1"),)
    )
    assert item_bytes(small) == 0
    assert item_bytes(with_rows) == 2 * ROW + 4 + 2
    assert item_bytes(msgspec.structs.replace(small, steps=(step,))) == 9
    moves = {
        Complete(result='""', starts=(NewRun(id=UUID(int=2), type="a.b.v1", params="1", key="k"),)): 6,
        Advance(result='""'): 4,
        Fail(error="{}", last_error="not counted", kind="x"): 2,
        Retry(error=None, last_error=None, delay_seconds=1.0): 0,
        BeginPlan(plan=(PlanStep(name="A", ask="12"), PlanStep(name="B", ask="3"))): 3,
        PARK: 0,
    }
    for move, size in moves.items():
        assert item_bytes(msgspec.structs.replace(small, move=move)) == size
