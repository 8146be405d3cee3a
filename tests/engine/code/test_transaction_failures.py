"""Transactions in trouble: lost replies, lost leases, and failures beside other writes of the same commit."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import apsw
import pytest

from holdfast import App, Backoff
from holdfast.engine.commit.committer import COMMIT_TRIES, DISK_TRIES
from holdfast.errors import Unavailable
from holdfast.records import instant
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import explore
from holdfast.testing.faulty import Faulty, delay, fail_before, lose_reply
from tests.engine.accounts import amounts, echo, put, with_accounts
from tests.engine.kit import keys, outcome, process, trail


@pytest.fixture
def path(tmp_path):
    return with_accounts(tmp_path / "holdfast.db")


@pytest.fixture
def store(path, world):
    return SqliteStore(str(path), clock=world.now, inline=True)


@pytest.mark.spec("FLOW-16", "LEASE-14")
@pytest.mark.parametrize(("fault", "calls"), [(lose_reply, 1), (fail_before, 1)])
async def test_a_lost_reply_does_not_repeat_the_transaction(app, path, fault, calls):
    called = []

    def deposit(connection):
        called.append(put(connection, "ada"))
        return called[-1]

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit)

    app.store = Faulty(app.store)
    app.store.plan("transact", 1, fault)
    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == 1
    assert (app.store.calls["transact"], len(called)) == (2, calls)
    assert amounts(path) == {"ada": 1}


@pytest.mark.spec("FLOW-16", "LEASE-4")
@pytest.mark.parametrize("clever", [False, True])
async def test_a_transaction_that_outlasts_its_lease_leaves_nothing(app, path, world, clever):
    """Law 2 for the function's own writes: fence and lease are checked once more at the end."""
    called = []

    def deposit(connection):
        called.append(put(connection, "ada"))
        if len(called) == 1:
            world.leap(31)  # past the lease, as on a suspended machine
        if clever and len(called) == 1:
            raise OSError("and that was not all")
        return called[-1]

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit)

    run = await app.start(banking)
    await process(app, 1, lease=30)
    await process(app, 2, lease=30)
    assert await outcome(app, run) == ("succeeded", 1)
    assert called == [1, 1]
    assert amounts(path) == {"ada": 1}
    assert "lease_expired" in await trail(app, run)


@pytest.mark.spec("FLOW-16", "FLOW-2")
async def test_other_writes_in_the_commit_of_a_failed_transaction_are_recorded(app, path):
    """The result of a sibling in the same commit does not share its failure, nor do logs of the body."""
    tries = []

    def deposit(connection):
        tries.append(put(connection, "ada"))
        if len(tries) == 1:
            raise OSError("not now")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        ctx.log("first")
        ctx.emit("begun")
        at = ctx.now()
        await asyncio.gather(
            ctx.transaction(deposit, retry=Backoff.fixed(0.5)), ctx.step("a", echo), ctx.step("b", echo)
        )
        return at == ctx.now() or "later"

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == "later"
    assert tries == [1, 1]
    began = instant((await app.get(run.id)).created_at)
    assert (await app.emit("begun", id=f"{run.id}:{began}:emit:begun")).duplicate
    assert sorted(await keys(app, run)) == ["a", "b", "deposit", "emit:begun", "now", "now#2"]
    assert (await trail(app, run)).count("log") == 1


@pytest.mark.spec("FLOW-16", "FLOW-9")
async def test_other_writes_of_a_failed_transaction_are_sent_although_its_branch_has_ended(app, path):
    def fail(_connection):
        raise OSError("too late for anyone")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        async def impatient():
            with suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    await ctx.transaction(fail)

        async def step():
            await asyncio.sleep(0.5)
            return await ctx.step("a", echo, "done")

        return await asyncio.gather(ctx.transaction(put, "ada"), impatient(), step())

    run = await app.start(banking)
    app.store = Faulty(app.store)
    app.store.always("transact", delay(1))
    async with app.worker():
        assert await run.result(60) == [1, None, "done"]
    assert amounts(path) == {"ada": 1}


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize(("times", "ends"), [(3, ("succeeded", 1)), (1000, ("failed", "exhausted"))])
async def test_a_disk_that_refuses_writes_is_waited_for_but_not_forever(app, path, times, ends):
    """If the error of the driver is about another file, it is the function's own failure."""
    called = []

    def deposit(connection):
        called.append(1)
        if len(called) <= times:
            raise apsw.IOError("of which disk?")
        return put(connection, "ada")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit, retry=Backoff.fixed(0, attempts=1))

    run = await app.start(banking)
    async with app.worker():
        assert await outcome(app, run, within=60) == ends
    assert len(called) == min(times + 1, DISK_TRIES)
    if times > DISK_TRIES:
        assert "of which disk?" in (await app.get(run.id)).error.message


class RolledBack(Faulty):
    """Rolls back each transaction after its function, and reports that it cannot write now."""

    is_down = False

    async def transact(self, item, work, *rest):
        def rolled_back(connection):
            work(connection)
            raise apsw.FullError("no room for this one")

        with suppress(apsw.FullError, Unavailable):
            await self.inner.transact(item, rolled_back, *rest)
        raise Unavailable("no answer in time")

    async def due(self, *args, **fields):
        if self.is_down:
            raise Unavailable("down")
        return await self.inner.due(*args, **fields)


@pytest.mark.spec("FLOW-16")
async def test_a_commit_that_always_fails_counts_as_a_failed_try(app, path):
    """The store answers everything else. Each try would call the function again, without end."""
    called = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        deposit = lambda connection: called.append(put(connection, "ada"))  # noqa: E731 - it has a name below
        return await ctx.transaction(deposit, name="deposit", retry=Backoff.fixed(0, attempts=2))

    app.store = RolledBack(app.store)
    run = await app.start(banking)
    async with app.worker():
        assert await outcome(app, run, within=600) == ("failed", "exhausted")
    assert len(called) == 2 * COMMIT_TRIES
    message = (await app.get(run.id)).error.message
    assert "the commit of transaction 'deposit' failed 10 times, and the store answers other calls" in message
    assert amounts(path) == {}


@pytest.mark.spec("FLOW-16", "FLOW-21")
async def test_a_result_that_was_not_committed_is_not_counted(app, path):
    """Three tries of 600 bytes do not count as 1,800 bytes of values."""

    @app.workflow("bank.deposit.v1", bytes_max=1000)
    async def banking(ctx):
        value = lambda connection: put(connection, "ada") and "x" * 600  # noqa: E731 - it has a name below
        return await ctx.transaction(value, name="deposit", retry=Backoff.fixed(0, attempts=3))

    app.store = RolledBack(app.store)
    run = await app.start(banking)
    async with app.worker():
        assert await outcome(app, run, within=600) == ("failed", "exhausted")


@pytest.mark.slow
@pytest.mark.spec("FLOW-16")
async def test_a_store_that_is_down_for_ten_minutes_fails_no_transaction(app, path):
    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(put, "ada", retry=Backoff.fixed(0, attempts=1))

    store = app.store
    app.store = down = RolledBack(store)
    run = await app.start(banking)
    async with app.worker(lease=30) as worker:
        await asyncio.sleep(0.01)
        down.is_down = True
        await asyncio.sleep(600)
        worker.committer._store = store
        assert await run.result(60) == 1
    assert amounts(path) == {"ada": 1}


@pytest.mark.spec("FLOW-16")
async def test_a_branch_that_is_cancelled_before_its_turn_does_not_begin(app, path):
    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        first = asyncio.ensure_future(ctx.transaction(put, "ada", key="first"))
        second = asyncio.ensure_future(ctx.transaction(put, "bob", key="second"))
        await asyncio.sleep(0.5)
        second.cancel()
        return await first

    run = await app.start(banking)
    app.store = Faulty(app.store)
    app.store.plan("transact", 1, delay(1))
    async with app.worker():
        assert await run.result(60) == 1
    assert amounts(path) == {"ada": 1}


@pytest.mark.slow
@pytest.mark.spec("FLOW-16", "TEST-2")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
def test_a_transaction_happens_once_after_a_crash_at_any_store_call(checkpoint):
    """The faults include a zombie, a lost reply and a repeated call. The result counts the deposits."""
    app = App("memory://")

    def deposit(connection, n):
        connection.execute("create table if not exists account (name text unique, amount integer)")
        return put(connection, "ada", n)

    @app.workflow("bank.deposit.v1", checkpoint=checkpoint)
    async def banking(ctx):
        first = await ctx.transaction(deposit, 1, key="first")
        await ctx.step("between", echo)
        await ctx.sleep(5)
        second, _ = await asyncio.gather(ctx.transaction(deposit, 1, key="second"), ctx.step("beside", echo))
        return [first, second]

    report = explore(banking, store="sqlite")
    assert report.plays > report.calls > 10
