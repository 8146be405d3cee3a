"""Behind PgBouncer, where each transaction may have another session: `listen=off` is enough.

Debian's version 1.18 does not support prepared statements: what works there works with newer versions.
"""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import holdfast as hf
from holdfast.errors import StoreError
from holdfast.stores.postgres import PostgresStore
from servers.pgbouncer import running_pgbouncer
from servers.plugin import missing
from servers.postgres import running_postgres
from servers.private import ServerError
from tests.stores.postgres.sessions.opened import opened
from tests.stores.postgres.sessions.proxy import Proxy


@pytest.fixture(scope="module")
def server():
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def pooled(server):
    """A database behind a pooler that has two sessions for everybody."""
    server.create_database("orders")
    try:
        with running_pgbouncer(server, "orders", settings={"default_pool_size": "2"}) as database:
            yield database
    except ServerError as error:
        missing(str(error), "HOLDFAST_REQUIRE_PGBOUNCER")


@pytest.mark.slow
@pytest.mark.spec("STORE-1")
def test_a_fleet_works_through_a_few_sessions(pooled):
    """Eight stores on two sessions migrate, start, claim, renew and end runs."""
    url = pooled.url + "&listen=off"

    async def main():
        async with asyncio.timeout(50):
            apps = [_app(url) for _ in range(8)]
            workers = [app.worker(slots=10, lease=3.0) for app in apps]
            for worker in workers:
                await worker.__aenter__()
            handles = await apps[0].start_many([("shop.order.v1", n) for n in range(60)])
            await asyncio.gather(*(apps[n % 8].emit(f"paid:{n}", {"n": n}) for n in range(60)))
            results = await asyncio.gather(*(handle.result(30) for handle in handles))
            assert results == [2 * n + 1 for n in range(60)]
            await asyncio.gather(*(worker.stop() for worker in workers))
            await asyncio.gather(*(app.close() for app in apps))

    asyncio.run(main())


def _app(url):
    app = hf.App(url)

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        charged = await ctx.step("charge", _charge, n)
        paid = await ctx.await_event(f"paid:{n}", timeout=20)
        await ctx.sleep(0.05)
        return charged + paid.payload["n"]

    return app


async def _charge(n):
    return n + 1


def test_sessions_are_shared_and_a_warm_call_is_still_one_round_trip(pooled):
    async def main():
        async with opened(pooled.url + "&listen=off") as store:
            await store.now()
            with Proxy(pooled.dsn) as proxy:
                async with opened(proxy.url("allow_fsync_off=1&listen=off")) as other:
                    await other.now()
                    before = len(proxy.sent)
                    for _ in range(4):
                        await other.now()
                    assert len(proxy.sent) - before == 4
            assert len(set(await asyncio.gather(*(store.now() for _ in range(200))))) > 1

    asyncio.run(main())


def test_a_clock_of_a_test_reaches_whatever_session_there_is(pooled):
    """The clock is part of the statement, and does not stay on the session."""

    async def main():
        async with opened(pooled.url + "&listen=off", clock=lambda: 1_700_000_000_000_000) as store:
            setting = await store._call("clock")
            assert setting is not None
        async with opened(pooled.url + "&listen=off") as store:
            pool = store._pool()
            async with pool.borrow(5) as proxy:
                left = await proxy.fetchval("select nullif(current_setting('holdfast.now', true), '')")
                assert left is None

    asyncio.run(main())


def test_without_listen_off_it_is_said_what_is_wanting(pooled):
    with pytest.raises(StoreError, match="is between this process and the server: add listen=off"):
        asyncio.run(PostgresStore(pooled.url).open())


def test_a_pooler_that_swallows_our_settings_is_found_out_by_its_sessions(server, pooled):
    """With ignore_startup_parameters the pooler accepts the connection, and then prepared statements are
    missing.
    """
    settings = {"default_pool_size": "2", "ignore_startup_parameters": "jit,default_transaction_isolation"}

    async def main(url):
        async with opened(url) as store, opened(url) as other:
            for _ in range(20):
                await asyncio.gather(*(one._call("stats", 45.0) for one in (store, other) for _ in range(4)))

    with (
        running_pgbouncer(server, "orders", settings=settings) as database,
        pytest.raises(StoreError, match="is between this process and the server: add listen=off"),
    ):
        asyncio.run(main(database.url))


@pytest.mark.slow
@pytest.mark.spec("START-7", "FLOW-16")
def test_transactions_of_the_users_own_go_through_it_too(pooled):
    """A transaction has one session from begin to end, and needs nothing else."""
    app = hf.App(pooled.url + "&listen=off")

    async def add(connection, n: int) -> int:
        await connection.execute("create table if not exists tally (n integer)")
        return await connection.fetchval("insert into tally values ($1) returning n", n)

    @app.workflow("shop.tally.v1")
    async def tally(ctx, n: int) -> int:
        return await ctx.transaction(add, n) + await ctx.transaction(add, n)

    async def main():
        async with asyncio.timeout(50), app.worker():
            await app.publish()
            async with await psycopg.AsyncConnection.connect(pooled.dsn) as connection:
                run = await app.start(tally, 7, connection=connection)
            assert await run.result(30) == 14
        await app.close()

    asyncio.run(main())
