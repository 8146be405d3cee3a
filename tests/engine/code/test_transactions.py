"""Exactly-once steps: writes of a function to the store's database commit together with its checkpoint."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from holdfast import App, Backoff, Fatal, Status, StepFailed, UsageError
from holdfast.records import ANY
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.faulty import Faulty
from tests.engine.accounts import amounts, echo, put, with_accounts
from tests.engine.kit import keys, outcome, trail, until


@pytest.fixture
def path(tmp_path):
    return with_accounts(tmp_path / "holdfast.db")


@pytest.fixture
def store(path, world):
    return SqliteStore(str(path), clock=world.now, inline=True)


@dataclass
class Balance:
    name: str
    amount: int


@pytest.mark.spec("FLOW-16")
async def test_a_transaction_commits_with_its_result_and_is_not_called_again(app, path):
    """Law 3: a recorded step never runs again. Here that holds for its effect too."""
    called = []

    def deposit(connection, name, amount) -> Balance:
        called.append(name)
        return Balance(name, put(connection, name, amount))

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        first = await ctx.transaction(deposit, "ada", 5)
        again = await ctx.transaction(deposit, "ada", 7)
        await ctx.sleep(10)
        last = await ctx.transaction(deposit, "bob", 1, name="last", key="last:bob")
        return [first.amount, again.amount, last.name]

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == [5, 12, "bob"]
    assert called == ["ada", "ada", "bob"]
    assert amounts(path) == {"ada": 12, "bob": 1}
    steps = {step.key: step for step in await app.steps(run.id)}
    assert list(steps) == ["deposit", "deposit#2", "sleep", "last:bob"]
    assert (steps["deposit"].kind, steps["deposit"].output) == ("task", '{"name":"ada","amount":5}')


@pytest.mark.spec("FLOW-16", "FLOW-18", "COST-1", "TRAIL-4")
async def test_cost_events_and_log_rows_of_the_function_share_the_commit(app):
    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        def deposit(connection):
            ctx.cost(1.5)
            ctx.emit("deposited", {"by": ctx.idempotency_key})
            ctx.log("counting")
            return put(connection, "ada")

        return await ctx.transaction(deposit)

    @app.workflow("bank.watch.v1")
    async def watching(ctx):
        return (await ctx.await_event("deposited")).payload

    watcher = await app.start(watching)
    async with app.worker(keeper=False):
        await until(app, watcher, Status.WAITING)
        run = await app.start(banking)
        assert await run.result(60) == 1
        assert await watcher.result(60) == {"by": f"{run.id}:deposit"}
    assert (await app.get(run.id)).cost == 1.5
    rows = await app.trail(run.id)
    assert [row.type for row in rows] == [
        "created", "leased", "started", "log", "step_succeeded", "succeeded",
    ]  # fmt: skip
    assert rows[3].data == {"message": "counting", "level": "info", "step": "deposit"}


@pytest.mark.spec("FLOW-16", "RETRY-1")
async def test_a_function_that_raises_leaves_nothing_and_is_retried_by_its_policy(app, path):
    tries = []

    def deposit(connection):
        tries.append(put(connection, "ada"))
        if len(tries) < 3:
            raise OSError("not today")
        return tries

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit, retry=Backoff.fixed(5, attempts=3))

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == [1, 1, 1]
    assert amounts(path) == {"ada": 1}
    assert (await app.steps(run.id))[0].attempts == 3
    assert (await trail(app, run)).count("retried") == 2


def _raise(_connection):
    raise OSError("never")


def _endless(connection):
    connection.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    )


def _commits(connection):
    put(connection, "ada")
    connection.execute("commit")


def _unencodable(connection):
    return put(connection, "ada") and {1, 2}


def _stops(connection):
    put(connection, "ada")
    raise StopIteration


def _exits(connection):
    put(connection, "ada")
    raise SystemExit(1)


def _gives_up(connection):
    put(connection, "ada")
    raise Fatal("no")


async def _coroutine():
    pass


@pytest.mark.spec("FLOW-16", "FLOW-17", "FLOW-19")
@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (_raise, "exhausted", "never"),
        (_endless, "timeout", "longer than 0.02 s"),
        (_commits, "usage", "calls commit"),
        (_unencodable, "encoding", "the result of step"),
        (_stops, "exhausted", "raised StopIteration"),
        (_exits, "exhausted", "1"),
        (_gives_up, "fatal", "no"),
        (lambda connection: put(connection, "ada") and _coroutine(), "usage", "is async"),
    ],
)
async def test_a_faulty_function_leaves_nothing_and_the_step_fails_with_its_kind(
    app, path, function, kind, message
):
    caught = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        once = Backoff.fixed(0, attempts=1)
        try:
            await ctx.transaction(function, name="deposit", retry=once, limit=0.02)
        except StepFailed as error:
            caught.append(error)
        return await ctx.transaction(put, "bob")

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == 1
    assert [error.kind for error in caught] == [kind]
    assert message in str(caught[0])
    assert amounts(path) == {"bob": 1}
    failed = (await app.steps(run.id))[0]
    assert (failed.key, failed.status, failed.error.kind) == (
        "deposit",
        "failed",
        kind,
    )


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda ctx: ctx.transaction(echo), "write `def echo(connection, …)`"),
        (lambda ctx: ctx.transaction(lambda _: 1), "give name="),
        (lambda ctx: ctx.transaction(7), "is not a function"),
        (lambda ctx: ctx.transaction(put, limit=-1), "-1"),
    ],
)
async def test_bad_arguments_of_a_transaction_are_refused_at_the_call(app, ask, message):
    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)")):
            ask(ctx)

    run = await app.start(banking)
    async with app.worker():
        await run.result(60)
    assert await keys(app, run) == []


@pytest.mark.spec("FLOW-16")
async def test_steps_and_store_calls_inside_a_transaction_are_refused(app, path):
    messages = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        def deposit(connection):
            for ask in (
                lambda: ctx.step("a", echo),
                lambda: ctx.sleep(1),
                lambda: app.store.get(run.id, ANY).send(None),
            ):
                with pytest.raises(UsageError) as refused:
                    ask()
                messages.append(str(refused.value))
            return put(connection, "ada")

        return await ctx.transaction(deposit)

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == 1
    assert messages[0] == "'a' is asked for inside step 'deposit': steps and waits belong in the body"
    assert "called from inside the function of a transaction" in messages[2]


@pytest.mark.spec("FLOW-16", "PAUSE-1")
async def test_a_pause_request_takes_effect_at_the_commit_of_a_transaction(app, path):
    called = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        def deposit(connection):
            called.append(put(connection, "ada"))
            return called[-1]

        async def ask():
            await app.pause(ctx.run_id, by="me")

        await ctx.step("before", echo)
        await asyncio.gather(ctx.transaction(deposit), ask())
        return "on"

    run = await app.start(banking)
    async with app.worker():
        await until(app, run, Status.PAUSED)
        assert amounts(path) == {"ada": 1}
        await app.resume(run.id)
        assert await run.result(60) == "on"
    assert called == [1]
    assert (await trail(app, run)).count("step_succeeded") == 2


@pytest.mark.spec("FLOW-16", "FLOW-2")
async def test_branches_can_run_transactions_and_steps_at_once(app, path):
    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        async def one(n):
            got = await ctx.transaction(put, f"n{n}", key=f"put:{n}")
            return got + await ctx.step("step", echo, 1, key=f"step:{n}")

        total = sum(await asyncio.gather(*map(one, range(5))))
        await ctx.sleep(5)
        return total

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == 10
    assert amounts(path) == {f"n{n}": 1 for n in range(5)}
    assert len(await keys(app, run)) == 11


@pytest.mark.spec("FLOW-16", "FLOW-12")
@pytest.mark.parametrize("fails", [False, True])
async def test_in_a_segment_buffered_results_share_the_commit_of_a_transaction(app, path, fails):
    tries = []

    def deposit(connection):
        tries.append(put(connection, "ada"))
        if fails and len(tries) == 1:
            raise OSError("not now")
        return tries[-1]

    @app.workflow("bank.deposit.v1", checkpoint="segment")
    async def banking(ctx):
        await ctx.step("a", echo)
        await ctx.step("b", echo)
        await ctx.transaction(deposit, retry=Backoff.fixed(0.5))
        return await ctx.step("c", echo, "done")

    run = await app.start(banking)
    app.store = Faulty(app.store)
    async with app.worker(keeper=False):
        assert await run.result(60) == "done"
    assert (app.store.calls["commit"], app.store.calls["transact"]) == ((2, 2) if fails else (1, 1))
    assert await keys(app, run) == ["a", "b", "deposit", "c"]
    assert amounts(path) == {"ada": 1}


@pytest.mark.spec("FLOW-16", "FLOW-15")
async def test_a_sync_workflow_can_use_transactions(app, path):
    @app.workflow("bank.deposit.v1")
    def banking(ctx):
        return ctx.transaction(put, "ada")

    run = await app.start(banking)
    async with app.worker():
        assert await run.result(60) == 1
    assert amounts(path) == {"ada": 1}


@pytest.mark.spec("FLOW-16")
async def test_a_store_without_a_database_refuses_transactions(world):
    app = App(MemoryStore(clock=world.now), world=world)

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        await ctx.transaction(put, "ada")

    run = await app.start(banking)
    async with app.worker():
        assert await outcome(app, run) == ("failed", "usage")
    error = (await app.get(run.id)).error
    assert error.message.startswith("step 'put' failed: the memory store has no database")


@pytest.mark.spec("FLOW-16", "LEASE-8")
async def test_a_time_limit_too_long_for_renewals_is_refused_and_the_default_is_lowered(app, monkeypatch):
    """A renewal waits for the function: after a third of the lease, other leases could expire."""
    limits = []
    transact = app.store.transact
    monkeypatch.setattr(app.store, "transact", lambda *args: (limits.append(args[2]), transact(*args))[1])

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        for key, limit in {"usual": None, "short": 1, "longest": 3}.items():
            await ctx.transaction(put, key, key=key, limit=limit)
        with pytest.raises(UsageError, match=r"limit is 3\.1 s, and this worker's lease of 9 s") as refused:
            await ctx.transaction(put, "long", limit=3.1)
        return str(refused.value)

    run = await app.start(banking)
    async with app.worker(lease=9):
        assert "\n" not in await run.result(60)
    assert limits == [3, 1, 3]
    assert await keys(app, run) == ["usual", "short", "longest"]
