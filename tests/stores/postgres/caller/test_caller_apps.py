"""Apps whose users start runs and emit events in their own transactions."""

from __future__ import annotations

import asyncio
import sys
from subprocess import run as spawned

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

from holdfast import App, Compress
from holdfast.errors import KeyReused, UsageError
from tests.stores.postgres.caller.callers import url
from tests.stores.postgres.sessions.opened import until

PATIENCE = 20.0


@pytest.mark.spec("START-7", "EVENT-1", "EVENT-3")
async def test_an_idle_worker_takes_it_at_the_commit_and_the_event_is_delivered(database, admin):
    """The caller's commit sends a wake-up: the worker need not poll."""
    app = App(database.url)

    @app.workflow("shop.order.v1")
    async def order(ctx, name: str):
        return name, (await ctx.await_event("paid", 30)).payload

    async with await psycopg.AsyncConnection.connect(database.dsn) as connection, app.worker(poll=30):
        await asyncio.sleep(0.1)  # until it is idle
        run = await app.start(order, "ada", connection=connection)
        await asyncio.sleep(0.1)
        assert await app.get(run.id) is None
        await connection.commit()
        await until(lambda: _waits(admin))
        emitted = await app.emit("paid", 7, connection=connection)
        await asyncio.sleep(0.1)
        assert _waits(admin)
        await connection.commit()
        assert await run.result(PATIENCE) == ["ada", 7]
    assert emitted.woken is None
    await app.close()


def _waits(admin):
    return admin.execute("select 1 from workflow.workflow_run where status = 'waiting'").fetchall()


@pytest.mark.spec("START-7", "EVENT-1")
@pytest.mark.parametrize("kind", ["psycopg", "connection", "session"])
def test_sync_code_needs_no_event_loop_and_opens_no_store(database, admin, kind):
    app = App(database.url)
    engine = sa.create_engine(url(database.dsn, "psycopg"))
    opened = {
        "psycopg": lambda: psycopg.connect(database.dsn),
        "connection": engine.connect,
        "session": lambda: orm.Session(engine),
    }
    with opened[kind]() as given:
        started = app.sync.start("shop.order.v1", 1, key="k", connection=given)
        again, other = app.sync.start_many(
            [("shop.order.v1", 1, {"key": "k"}), ("shop.order.v1", 2, {"key": "k"})], connection=given
        )
        assert (again.id, again.created) == (started.id, False)
        assert isinstance(other, KeyReused)
        assert not app.sync.emit("paid", 7, id="e", connection=given).duplicate
        assert not app.store._is_open
        given.commit()
    engine.dispose()
    assert admin.execute("select id from workflow.workflow_run").fetchall() == [(started.id,)]
    assert admin.execute("select event_id from workflow.workflow_inbox").fetchall() == [("e",)]


@pytest.mark.spec("START-7")
async def test_an_async_connection_is_refused_by_the_sync_app_before_anything_is_sent(database):
    """The connection is not changed."""
    app = App(database.url)
    connection = await asyncpg.connect(database.dsn)
    engine = sa_async.create_async_engine(url(database.dsn, "asyncpg"))
    async with connection.transaction(), engine.connect() as other:
        for given in (connection, other):
            with pytest.raises(UsageError, match="use the app itself"):
                app.sync.start("shop.order.v1", connection=given)
        assert await connection.fetchval("select count(*) from workflow.workflow_run") == 0
        (handle,) = [await app.start("shop.order.v1", connection=other)]
        assert handle.created
        await other.commit()
    await connection.close()
    await engine.dispose()


@pytest.mark.spec("START-7")
async def test_sync_code_inside_an_async_session_is_served_there(database, admin):
    """`run_sync` gives a sync session whose driver is async."""
    app = App(database.url)
    engine = sa_async.create_async_engine(url(database.dsn, "asyncpg"))
    async with sa_async.AsyncSession(engine) as session:
        handle = await session.run_sync(
            lambda session: app.sync.start("shop.order.v1", 1, connection=session)
        )
        await session.commit()
    await engine.dispose()
    assert admin.execute("select id from workflow.workflow_run").fetchall() == [(handle.id,)]


@pytest.mark.spec("START-7", "START-4")
def test_behind_a_codec_a_key_that_is_taken_is_reported_in_sync_code_too(database):
    """The store need not be open for the comparison, and there is no event loop to open it on."""
    app = App(database.url, codec=Compress())
    with psycopg.connect(database.dsn) as connection:
        first = app.sync.start("shop.order.v1", [1] * 999, key="k", connection=connection)
        again = app.sync.start("shop.order.v1", [1] * 999, key="k", connection=connection)
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(KeyReused):
            app.sync.start("shop.order.v1", [2] * 999, key="k", connection=connection)


def test_no_driver_is_imported_that_its_caller_has_not(database):
    """Other drivers are not required: most callers have only one."""
    script = f"""
import asyncio, sys, asyncpg, holdfast
async def main():
    connection = await asyncpg.connect({database.dsn!r})
    async with connection.transaction():
        await holdfast.App({database.url!r}).start("shop.order.v1", connection=connection)
    await connection.close()
asyncio.run(main())
print([name for name in ("psycopg", "sqlalchemy") if name in sys.modules])
"""
    done = spawned([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
