"""Migration of stores without kept counts: their runs are counted, also those that are written meanwhile."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest

from holdfast.records import ANY, Ask, NewRun
from holdfast.stores.postgres import PostgresStore, migrate
from tests.stores.postgres.schema.test_migrate import made_by_older
from tests.stores.postgres.sessions.opened import opened, until

RUNS = """
insert into workflow.workflow_run (id, tenant, type, status, max_attempts, finished_at, deleted_at, rev)
select gen_random_uuid(), 'tenant-' || n % 2, 'shop.t' || n % 3 || '.v1',
    case when n % 5 < 3 then 'succeeded' else 'pending' end, 3, case when n % 5 < 3 then now() end,
    case when n % 7 = 0 then now() end, 1
from generate_series(1, 210) as n
"""
GROUPED = """
select type, status, count(*) from workflow.workflow_run
where deleted_at is null and (tenant = %(tenant)s or %(tenant)s is null) group by type, status
"""
TENANTS = {None: ANY, "tenant-0": "tenant-0", "tenant-1": "tenant-1", "nobody": "nobody"}
WAITS = "select 1 from pg_locks where mode = 'ShareRowExclusiveLock' and not granted"


@pytest.fixture
def admin(postgres_database):
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        yield connection


async def checked(url, admin):
    """Check the counts against the rows; then start and claim."""
    async with opened(url) as store:
        await _agree(store, admin)
        await store.start([NewRun(id=_id(n), type="shop.t1.v1", tenant="tenant-1") for n in range(3)])
        await store.claim(Ask(worker="w", types=("shop.t1.v1",), limit=2))
        await _agree(store, admin)


async def _agree(store, admin):
    assert await store.recount() == []
    for name, tenant in TENANTS.items():
        rows = admin.execute(GROUPED, {"tenant": name}).fetchall()
        found = (await store.counts(tenant)).by_type
        assert {(kind, status): n for kind, one in found.items() for status, n in one.items()} == {
            (kind, status): n for kind, status, n in rows
        }


def _id(number):
    return UUID(int=7 << 76 | 2 << 62 | number + 1)


@pytest.mark.spec("STORE-5", "READ-4")
@pytest.mark.parametrize("minor", [1, 4, 6])
def test_the_runs_of_an_older_store_are_counted(postgres_database, admin, monkeypatch, minor):
    made_by_older(postgres_database.url, monkeypatch, minor)
    admin.execute(RUNS)
    asyncio.run(checked(postgres_database.url, admin))


@pytest.mark.slow
@pytest.mark.spec("STORE-5", "READ-4")
def test_a_run_that_is_written_beside_the_migration_is_counted_once(postgres_database, admin, monkeypatch):
    """The migration waits for those that write, and they for it."""
    made_by_older(postgres_database.url, monkeypatch, 6)
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 20)
    admin.execute(RUNS)

    async def main():
        with psycopg.connect(postgres_database.dsn) as writer:
            writer.execute(RUNS)
            store = PostgresStore(postgres_database.url)
            opening = asyncio.create_task(store.open())
            await until(lambda: admin.execute(WAITS).fetchone())
            writing = asyncio.create_task(asyncio.to_thread(_write, postgres_database.dsn))
            await asyncio.sleep(0)
            writer.commit()
        await asyncio.gather(opening, writing)
        await store.close()
        await checked(postgres_database.url, admin)

    asyncio.run(main())


def _write(dsn):
    with psycopg.connect(dsn) as other:
        other.execute(RUNS)


def test_the_clock_calls_nothing_that_a_role_could_put_in_front(postgres_database, admin):
    """Triggers of the counts call it with the rights of the owner, and with any search path."""
    asyncio.run(checked(postgres_database.url, admin))
    (body,) = admin.execute(
        "select prosrc from pg_proc where oid = 'workflow.clock()'::regprocedure"
    ).fetchone()
    assert body == "select pg_catalog.statement_timestamp()"
