"""The effect buffer: it is committed before the move that ends an execution, in items of bounded size."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast import Backoff, Status, TooLarge
from holdfast.errors import Unavailable
from holdfast.lifecycle import Move
from holdfast.records.sizes import ROW, item_bytes
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.faulty import Faulty
from tests.engine.kit import keys, outcome, until

KIB = 1024  # the real bounds are in MiB; here each is as many KiB
ITEM = 128 * KIB


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch):
    monkeypatch.setattr("holdfast.bounds.ITEM_BYTES", ITEM)
    monkeypatch.setattr("holdfast.engine.commit.journal.BATCH_BYTES", 8 * KIB)
    monkeypatch.setattr("holdfast.engine.outbox.messages.SENT_BYTES", 64 * KIB)
    monkeypatch.setattr("holdfast.engine.outbox.messages.LOGGED_BYTES", 32 * KIB)


class Slow(Faulty):
    """Commits take two seconds, so that more is buffered behind them. Records the items."""

    def __init__(self, store, seconds=2):
        super().__init__(store)
        self.items, self.seconds = [], seconds

    async def commit(self, batch):
        self.items += batch
        await asyncio.sleep(self.seconds)
        return await self.inner.commit(batch)

    async def transact(self, item, work, *args):
        def performed(connection):
            done = work(connection)
            self.items.append(done)
            return done

        await asyncio.sleep(self.seconds)
        return await self.inner.transact(item, performed, *args)

    @property
    def largest(self):
        return max(map(item_bytes, self.items))


def value(n):
    return str(n) + "x" * (4 * KIB - ROW - 50)


def repeat_until_too_large(send_one, *args, **fields):
    with suppress(TooLarge):
        while True:
            send_one(*args, **fields)


def flaky(times):
    left = [None] * times

    async def fn():
        if left:
            left.pop()
            raise Unavailable("flaky")
        return "ok"

    return fn


async def test_a_failed_try_does_not_make_a_retry_too_large(app):
    executions, made = [], []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.1, attempts=5))
    async def order(ctx):
        executions.append(None)
        tries = flaky(len(executions) == 1)

        async def one(n):
            await asyncio.sleep(0.2)
            made.append(n)
            return value(n)

        first = asyncio.ensure_future(ctx.step("first", lambda: 1))
        await asyncio.sleep(0.1)
        again = asyncio.ensure_future(ctx.step("flaky", tries, retry=Backoff.fixed(0.1, attempts=5)))
        rest = [asyncio.ensure_future(ctx.step(f"s{n}", one, n)) for n in range(40)]
        if len(executions) == 1:
            await asyncio.sleep(1)
            raise Unavailable("body")
        return len(await asyncio.gather(first, again, *rest))

    app.store = store = Slow(app.store)
    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run) == ("succeeded", 42)
    assert store.largest <= 16 * KIB
    assert len(executions) == 2
    assert sorted(made) == list(range(40))  # each result was recorded: no step ran twice
    assert [key for key in await keys(app, run) if key[0] == "s"] == [f"s{n}" for n in made]
    assert (await app.get(run.id)).attempt == 1
    retried = [row.data.get("step") for row in await app.trail(run.id) if row.type == "retried"]
    assert retried == ["flaky"]


async def test_many_steps_that_back_off_are_recorded_in_several_items(app):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(60, attempts=5))
    async def order(ctx):
        async def fails():
            raise Unavailable("x" * 4000)

        async def one(n):
            return await ctx.step(f"s{n}", fails if n not in passed else flaky(0))

        return len(await asyncio.gather(*[one(n) for n in range(36)]))

    passed = set()
    app.store = store = Slow(app.store, 0.01)
    run = await app.start(order)
    async with app.worker():
        await until(app, run, Status.LEASED)
        found = await until(app, run, Status.PENDING, Status.FAILED)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        assert sorted(await keys(app, run)) == sorted(f"s{n}" for n in range(36))
        passed.update(range(36))
        assert await outcome(app, run) == ("succeeded", 36)
    assert store.largest <= 24 * KIB
    rows = [row.data for row in await app.trail(run.id) if row.type == "retried"]
    assert sorted(row["step"] for row in rows) == sorted(f"s{n}" for n in range(36))
    assert [row.get("status") for row in rows].index("pending") > 30  # all items but the last kept the lease


@pytest.mark.parametrize("parks", [True, False])
async def test_a_wait_that_ends_between_two_items_wakes_the_run(app, parks):
    """The items before a park announce the wait too: the run must not sleep after its wait has ended."""

    @app.workflow("shop.order.v1", retry=Backoff.fixed(3600, attempts=5))
    async def order(ctx):
        async def other():
            await ctx.step("work", lambda: asyncio.sleep(10))
            for n in range(6):
                ctx.emit("done", value(n), name=f"e{n}")
            if parks:
                await ctx.await_event("never")
            else:
                await ctx.step("fails", flaky(9))

        asking = asyncio.ensure_future(other())
        got = await ctx.await_event("go")
        asking.cancel()
        return got.payload

    class Watched(Slow):
        async def commit(self, batch):
            if any(step.key == "e0" for item in batch for step in item.steps):
                await app.emit("go", 7)
            return await super().commit(batch)

    app.store = store = Watched(app.store)
    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run, within=600) == ("succeeded", 7)
    assert Move.CHECKPOINT in [
        item.move.verb for item in store.items if any(s.key == "e0" for s in item.steps)
    ]


@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_everything_that_may_be_sent_and_logged_fits_into_one_item(app, checkpoint):
    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        def sends(*_connection):
            repeat_until_too_large(ctx.send, "mail", value(0))
            return value(0)

        first = asyncio.ensure_future(ctx.step("first", lambda: 1))
        await asyncio.sleep(0.1)
        repeat_until_too_large(ctx.log, "much", text=value(0))
        first_send = asyncio.ensure_future(ctx.step("sends", sends))
        await asyncio.sleep(0.1)
        # Memory and Redis have no transactions.
        await (ctx.transaction(sends, name="then") if is_sqlite else ctx.step("then", sends))
        await asyncio.gather(first, first_send)
        repeat_until_too_large(ctx.log, "much", text=value(0))
        await ctx.step("again", sends)
        return value(0)

    is_sqlite = isinstance(app.store, SqliteStore)
    app.store = store = Slow(app.store)
    run = await app.start(order)
    async with app.worker():
        assert await outcome(app, run) == ("succeeded", value(0))
    assert store.largest <= ITEM
    assert len([row for row in await app.trail(run.id) if row.type == "log"]) >= 7
    assert len(await app.outbox(limit=100)) == 3 * 16
