"""ctx.transaction on Postgres: workflows whose steps write the user's own tables, exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from holdfast import App, Backoff, Compress, Fatal
from holdfast.errors import RunFailed, StepFailed
from holdfast.testing.faulty import Faulty, lose_reply
from tests.stores.postgres.caller.callers import url
from tests.stores.postgres.sessions.opened import cut_all

PATIENCE = 20.0
ONCE = Backoff.fixed(0, attempts=1)


@pytest.fixture
def app(database, admin):
    admin.execute("create table account (name text primary key, amount integer not null)")
    return App(database.url)


@pytest.fixture
def engine(database):
    engine = sa.create_engine(url(database.dsn, "psycopg"))
    yield engine
    engine.dispose()


async def put(connection, name, amount=1) -> int:
    sql = (
        "insert into account values ($1, $2) "
        "on conflict (name) do update set amount = account.amount + excluded.amount returning amount"
    )
    return await connection.fetchval(sql, name, amount)


def put_plain(connection, name, amount=1) -> int:
    sql = (
        "insert into account values (:name, :amount) "
        "on conflict (name) do update set amount = account.amount + excluded.amount returning amount"
    )
    return connection.execute(sa.text(sql), {"name": name, "amount": amount}).scalar_one()


def amounts(admin):
    return dict(admin.execute("select name, amount from account").fetchall())


async def played(app, workflow, *params, **options):
    run = await app.start(workflow, *params)
    try:
        async with app.worker(**options):
            return run, await run.result(PATIENCE)
    finally:
        await app.close()


@pytest.mark.spec("FLOW-16", "FLOW-18", "COST-1", "TRAIL-4")
async def test_it_is_done_with_its_result_and_what_it_says_goes_along(app, admin):
    called = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        async def deposit(connection, name):
            called.append(name)
            ctx.cost(1.5)
            ctx.emit("deposited", {"by": ctx.idempotency_key})
            ctx.log("counting")
            return await put(connection, name, 5)

        first = await ctx.transaction(deposit, "ada")
        event = await ctx.await_event("deposited", 10)
        await ctx.sleep(0.01)
        return first, await ctx.transaction(put, "ada", 7), event.payload["by"] == f"{ctx.run_id}:deposit"

    run, result = await played(app, banking)
    assert (result, called, amounts(admin)) == ([5, 12, True], ["ada"], {"ada": 12})
    await app.store.open()
    assert (await app.get(run.id)).cost == 1.5
    assert "log" in [row.type for row in await app.trail(run.id)]
    await app.close()


@pytest.mark.spec("FLOW-16", "FLOW-15")
@pytest.mark.parametrize("of", ["engine", "sessions"])
async def test_a_function_on_a_users_sync_engine_runs_on_a_thread(app, admin, engine, of):
    """The same for sync steps; a sync workflow can do it too."""
    on, kind = (engine, sa.Connection) if of == "engine" else (orm.sessionmaker(engine), orm.Session)
    seen = []

    def deposit(given, name):
        seen.append((isinstance(given, kind), threading.current_thread() is threading.main_thread()))
        return put_plain(given, name)

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit, "ada", on=on)

    @app.workflow("bank.plain.v1")
    def plainly(ctx):
        return ctx.transaction(deposit, "bob", on=on)

    assert (await played(app, banking))[1] == (await played(app, plainly))[1] == 1
    assert amounts(admin) == {"ada": 1, "bob": 1}
    assert seen == [(True, False)] * 2


async def _raises(connection):
    await put(connection, "ada")
    raise OSError("never")


async def _gives_up(connection):
    await put(connection, "ada")
    raise Fatal("no")


async def _sleeps(connection):
    await put(connection, "ada")
    await connection.execute("select pg_sleep(30)")


async def _commits(connection):
    await put(connection, "ada")
    await connection.execute("commit")


async def _unencodable(connection):
    return await put(connection, "ada") and {1, 2}


@pytest.mark.spec("FLOW-16", "FLOW-17", "FLOW-19")
@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (_raises, "exhausted", "never"),
        (_gives_up, "fatal", "no"),
        (_sleeps, "timeout", "longer than 0.2 s"),
        (_commits, "usage", "calls commit"),
        (_unencodable, "encoding", "the result of step"),
        (lambda _connection: 7, "usage", "write `async def deposit(connection, …)`"),
    ],
)
async def test_whatever_is_wrong_with_it_nothing_stays_and_the_step_fails_by_its_kind(
    app, admin, function, kind, said
):
    caught = []

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        try:
            await ctx.transaction(function, name="deposit", retry=ONCE, limit=0.2)
        except StepFailed as error:
            caught.append(error)
        return await ctx.transaction(put, "bob")

    assert (await played(app, banking))[1] == 1
    assert [error.kind for error in caught] == [kind]
    assert said in str(caught[0])
    assert amounts(admin) == {"bob": 1}


@pytest.mark.spec("FLOW-16", "LEASE-14")
async def test_a_reply_that_is_lost_does_not_do_it_again(app, admin):
    called = []

    async def deposit(connection):
        called.append(1)
        return await put(connection, "ada")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit)

    app.store = Faulty(app.store)
    app.store.plan("transact", 1, lose_reply)
    assert (await played(app, banking))[1] == 1
    assert (called, amounts(admin)) == ([1], {"ada": 1})


@pytest.mark.spec("FLOW-16")
async def test_a_server_that_cuts_it_off_does_not_fail_it(app, admin):
    """The step is called again, no attempt is counted, and it is done once."""
    called = []

    async def deposit(connection):
        called.append(await put(connection, "ada"))
        if len(called) == 1:
            cut_all(admin)
        return await connection.fetchval("select amount from account")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit, retry=ONCE)

    _, result = await played(app, banking)
    assert (result, called, amounts(admin)) == (1, [1, 1], {"ada": 1})


@pytest.mark.spec("FLOW-16", "LEASE-8")
async def test_it_may_take_longer_than_renewals_are_apart(app, admin):
    """No lease waits for the function, so only its own limit counts."""

    async def deposit(connection):
        await asyncio.sleep(2.5)
        return await put(connection, "ada")

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(deposit, limit=10, retry=ONCE)

    assert (await played(app, banking, lease=1))[1] == 1
    assert amounts(admin) == {"ada": 1}


@pytest.mark.spec("FLOW-16")
async def test_behind_a_codec_it_is_the_same(database, admin, app):
    app = App(database.url, codec=Compress(min_bytes=1))

    async def deposit(connection) -> list[int]:
        return [await put(connection, "ada")] * 99

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        first = await ctx.transaction(deposit)
        await ctx.sleep(0.01)
        return sum(first)

    assert (await played(app, banking))[1] == 99
    assert amounts(admin) == {"ada": 1}


@pytest.mark.spec("FLOW-16")
async def test_an_engine_that_leads_elsewhere_fails_it_in_one_line(app, postgres_server):
    postgres_server.create_database("somewhere")
    engine = sa.create_engine(url(postgres_server.dsn("somewhere"), "psycopg"))

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(put_plain, "ada", on=engine)

    with pytest.raises(RunFailed, match="on a database without this store"):
        await played(app, banking)
    engine.dispose()


WORKER = """
import asyncio, sys, holdfast
app = holdfast.App(sys.argv[1])

async def deposit(connection):
    await connection.execute("insert into account values ('ada', 1)")
    print("written", flush=True)
    await asyncio.sleep(60)

@app.workflow("bank.deposit.v1")
async def banking(ctx):
    return await ctx.transaction(deposit, limit=60)

async def main():
    async with app.worker(lease=1):
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("FLOW-16", "LEASE-4")
async def test_a_worker_that_is_killed_in_the_middle_of_it_leaves_nothing(app, admin, database):
    """The next worker does the step."""

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        return await ctx.transaction(put, "ada", name="deposit")

    run = await app.start(banking)
    with subprocess.Popen([sys.executable, "-c", WORKER, database.url], stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - to be killed
        assert await asyncio.to_thread(process.stdout.readline) == b"written\n"
        os.kill(process.pid, signal.SIGKILL)
    async with app.worker():
        assert await run.result(PATIENCE) == 1
    await app.close()
    assert amounts(admin) == {"ada": 1}


@pytest.mark.spec("FLOW-16", "START-7")
async def test_a_run_that_it_starts_is_there_with_it_and_only_then(app, admin):
    """Also exactly once: its connection is in a transaction, like a caller's."""

    @app.workflow("bank.mail.v1")
    async def mail(ctx):
        return "sent"

    @app.workflow("bank.deposit.v1")
    async def banking(ctx):
        async def deposit(connection, *, fails):
            run = await app.start(mail, connection=connection)
            await put(connection, "ada")
            if fails:
                raise OSError("not now")
            return str(run.id)

        async def failing(connection):
            return await deposit(connection, fails=True)

        async def passing(connection):
            return await deposit(connection, fails=False)

        with pytest.raises(StepFailed):
            await ctx.transaction(failing, retry=ONCE)
        return await ctx.transaction(passing)

    _, started = await played(app, banking)
    sql = "select id::text from workflow.workflow_run where type = 'bank.mail.v1'"
    found = admin.execute(sql).fetchall()
    assert (found, amounts(admin)) == ([(started,)], {"ada": 1})
