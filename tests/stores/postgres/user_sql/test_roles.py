"""Roles: one that owns the schema and changes it, one that works in it and can change nothing of it."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files
from uuid import UUID

import psycopg
import pytest

from holdfast.errors import SchemaMismatch, StoreError
from holdfast.records import Ask, NewRun, RunFilter
from holdfast.stores.postgres import PostgresStore, migrate
from tests.stores.postgres.sessions.opened import opened

GRANTS = (files("holdfast.stores.postgres") / "grants.sql").read_text("utf-8")


class Roles:
    """The two roles of grants.sql, with names of this test."""

    def __init__(self, database):
        self._database = database
        self.owner, self.app = f"owner_{database.name}", f"app_{database.name}"

    def url(self, role, options=""):
        return self._database.url.replace("postgres@", f"{role}@") + options

    def run(self, part, role="postgres"):
        by_admin, by_owner = re.split(r"-- Once, by holdfast_owner.*?\n", GRANTS)
        text = {"admin": by_admin, "owner": by_owner}[part]
        text = text.replace("holdfast_owner", self.owner).replace("holdfast_app", self.app)
        with self.connect(role) as connection:
            connection.execute(text.replace("database shop", f'database "{self._database.name}"'))

    def connect(self, role):
        return psycopg.connect(self._database.dsn.replace("postgres@", f"{role}@"), autocommit=True)

    def drop(self):
        with self.connect("postgres") as connection:
            for role in (self.app, self.owner):
                connection.execute(f"drop owned by {role} cascade")
                connection.execute(f"drop role {role}")


@pytest.fixture
def roles(postgres_database):
    found = Roles(postgres_database)
    found.run("admin")
    yield found
    found.drop()


@pytest.fixture
def migrated(roles):
    asyncio.run(_opened(roles.url(roles.owner)))
    roles.run("owner", roles.owner)
    return roles


async def _opened(url):
    async with opened(url):
        pass


@pytest.mark.spec("STORE-5")
def test_the_app_opens_what_is_up_to_date_and_works_in_it(migrated):
    """Start, claim, read, listen: grants.sql gives enough rights."""

    async def main():
        async with opened(migrated.url(migrated.app)) as store:
            run = UUID(int=7 << 76 | 2 << 62 | 1)
            all_listening = asyncio.Event()
            store.listen(all_listening.set)
            await store.start([NewRun(id=run, type="shop.order.v1")])
            await asyncio.wait_for(all_listening.wait(), 5)
            [claim] = await store.claim(Ask(worker="w", types=("shop.order.v1",), limit=1))
            assert claim.id == run
            assert [one.id for one in await store.list(RunFilter())] == [run]
            await store.stats()

    asyncio.run(main())


@pytest.mark.parametrize(
    "statement",
    [
        "create table workflow.more (id integer)",
        "drop table workflow.workflow_run",
        "alter table workflow.workflow_run add column more integer",
        "create or replace function workflow.hint() returns void language sql as 'select 1'",
        "drop function workflow.hint()",
        "drop schema workflow cascade",
        "update workflow.workflow_schema set minor = 9",
        "create schema more",
    ],
)
def test_the_app_can_change_nothing_of_the_schema(migrated, statement):
    with migrated.connect(migrated.app) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


def test_the_app_says_that_there_is_nothing_yet(roles):
    with pytest.raises(
        StoreError,
        match=r"may not make one \(permission denied .*run `holdfast migrate --store URL` with its owner's",
    ):
        asyncio.run(PostgresStore(roles.url(roles.app)).open())


def test_the_app_says_that_the_schema_is_older(migrated, monkeypatch):
    monkeypatch.setattr(migrate, "FUNCTIONS", migrate.FUNCTIONS + 1)
    with pytest.raises(
        SchemaMismatch, match=r"may not change it .*run `holdfast migrate --store URL` with its owner's URL"
    ):
        asyncio.run(PostgresStore(migrated.url(migrated.app)).open())


def test_what_a_later_migration_adds_is_granted_too(migrated, monkeypatch):
    more = "create table more (id bigint generated always as identity)"
    tables = [*migrate.schemas(), more]
    monkeypatch.setattr(migrate, "schemas", lambda: tables)
    asyncio.run(_opened(migrated.url(migrated.owner)))
    with migrated.connect(migrated.app) as connection:
        connection.execute("insert into workflow.more default values")
    asyncio.run(_opened(migrated.url(migrated.app)))


def test_a_role_without_rights_is_told_which_right_it_lacks(migrated):
    """A role that may connect, and nothing else."""
    with migrated.connect("postgres") as connection:
        connection.execute(f"revoke usage on schema workflow from {migrated.app}")
    with pytest.raises(StoreError, match=r"lacks a right \(permission denied for schema workflow\)"):
        asyncio.run(PostgresStore(migrated.url(migrated.app)).open())


def test_a_check_up_by_the_app_counts_all_sessions_and_says_what_it_may_not_know(migrated):
    """The server shows a role that others are connected, but not what they do."""

    async def told():
        async with opened(migrated.url(migrated.app)) as store:
            return [one.what for one in await store.checkup()]

    with migrated.connect("postgres") as admin:
        others = [migrated.connect("postgres") for _ in range(3)]
        found = asyncio.run(told())
        (count,) = [int(what.split()[0]) for what in found if what.endswith("connections are in use")]
        assert count >= 1 + len([admin, *others])
        assert any(
            "sessions of other roles are visible only with pg_read_all_stats" in what for what in found
        )
        admin.execute(f"grant pg_read_all_stats to {migrated.app}")
        assert "no session keeps a transaction open for long" in asyncio.run(told())
        for one in others:
            one.close()
