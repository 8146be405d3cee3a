"""Migration of the schema: forward only, one at a time, and never of newer or foreign tables."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdfast.errors import NotADatabase, SchemaMismatch, StoreError, Unavailable
from holdfast.stores.postgres import PostgresStore, migrate
from tests.stores.postgres.sessions.opened import opened, until


@pytest.fixture
def admin(postgres_database):
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def url(postgres_database):
    return postgres_database.url


async def _opened(url, **settings):
    async with opened(url, **settings):
        pass


HERE = len(migrate.schemas())  # the minor version
NEXT = HERE + 1  # that of a library which brings one more schema file


def stamp(admin):
    return admin.execute("select major, minor, functions, digest from workflow.workflow_schema").fetchone()


def answer(admin):
    return admin.execute("select workflow.answer()").fetchone()[0]


def newer(monkeypatch, number, says, more_tables=()):
    """A library with one more function, and perhaps one more file of tables."""
    text = f"create or replace function answer() returns text language sql as $$select '{says}'$$;"
    monkeypatch.setattr(migrate, "FUNCTIONS", number)
    monkeypatch.setattr(migrate, "functions", lambda: {"answer.sql": text})
    monkeypatch.setattr(migrate, "digest", lambda: says)
    tables = [*migrate.schemas(), *more_tables]
    monkeypatch.setattr(migrate, "schemas", lambda: tables)


@pytest.mark.spec("STORE-5")
def test_many_open_a_new_database_at_once(url, admin):
    async def main():
        stores = [PostgresStore(url) for _ in range(12)]
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(main())
    assert stamp(admin) == migrate.ours()


@pytest.mark.spec("STORE-5")
def test_a_newer_library_adds_what_is_new(url, admin, monkeypatch):
    asyncio.run(_opened(url))
    newer(monkeypatch, 2, "new", ["create table more (id integer)"])
    asyncio.run(_opened(url))
    assert answer(admin) == "new"
    assert stamp(admin) == (1, NEXT, 2, "new")
    admin.execute("select * from workflow.more")


@pytest.mark.spec("STORE-5")
def test_an_older_library_leaves_what_is_newer_alone(url, admin, monkeypatch):
    """The older library works with the newer tables and functions."""
    asyncio.run(_opened(url))
    with monkeypatch.context() as later:
        newer(later, 3, "new", ["create table more (id integer)"])
        asyncio.run(_opened(url))
    newer(monkeypatch, 2, "old")
    asyncio.run(_opened(url))
    asyncio.run(_opened(url, create=False))
    assert answer(admin) == "new"
    assert stamp(admin) == (1, NEXT, 3, "new")


def test_with_the_same_number_and_other_functions_the_last_one_wins(url, admin, monkeypatch):
    """That happens in development."""
    asyncio.run(_opened(url))
    for says in ("one", "two"):
        with monkeypatch.context() as library:
            newer(library, migrate.FUNCTIONS, says)
            asyncio.run(_opened(url))
        assert answer(admin) == says


@pytest.mark.spec("STORE-5")
@pytest.mark.parametrize(
    ("major", "way_out"), [(2, "upgrade holdfast"), (0, "export its runs with the older")]
)
def test_another_major_version_is_refused(url, admin, major, way_out):
    asyncio.run(_opened(url))
    admin.execute("update workflow.workflow_schema set major = %s", (major,))
    with pytest.raises(SchemaMismatch, match=f"is of major version {major}, this is for 1; {way_out}"):
        asyncio.run(_opened(url))


def test_without_create_only_what_is_there_and_up_to_date_is_opened(url, admin, monkeypatch):
    with pytest.raises(NotADatabase, match=r"there is no store in schema workflow; .*`holdfast migrate`"):
        asyncio.run(_opened(url, create=False))
    assert admin.execute("select to_regnamespace('workflow')").fetchone() == (None,)
    asyncio.run(_opened(url))
    asyncio.run(_opened(url, create=False))
    newer(monkeypatch, 2, "new")
    with pytest.raises(
        SchemaMismatch, match=rf"is of version 1\.{HERE}\.1, this library's is 1\.{HERE}\.2; run `holdfast"
    ):
        asyncio.run(_opened(url, create=False))


@pytest.mark.parametrize(
    "foreign",
    ["create table workflow.workflow_run (id integer)", "create table workflow.workflow_schema (v integer)"],
)
def test_tables_of_someone_else_are_left_as_they_are(url, admin, foreign):
    admin.execute(f"create schema workflow; {foreign}")
    with pytest.raises(NotADatabase, match=r"in schema workflow that is not ours; name another schema"):
        asyncio.run(_opened(url))
    assert (
        admin.execute(
            "select count(*) from pg_class where relnamespace = to_regnamespace('workflow')"
        ).fetchone()[0]
        < 3
    )
    asyncio.run(_opened(url + "&schema=ours"))


def test_a_schema_that_is_there_and_empty_is_taken(url, admin):
    admin.execute("create schema workflow; create table workflow.unrelated (id integer)")
    asyncio.run(_opened(url))


@pytest.mark.slow
def test_a_migration_that_waits_for_another_says_so_and_then_goes_on(url, admin, monkeypatch, caplog):
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.1)

    async def main():
        admin.execute(f"begin; select pg_advisory_xact_lock({migrate._LOCK}, hashtext('workflow'))")
        opening = asyncio.create_task(_opened(url))
        await until(lambda: "waiting for another process to bring the schema up to date" in caplog.text)
        assert not opening.done()
        admin.execute("rollback")
        await opening

    asyncio.run(main())
    assert caplog.text.count("waiting for") == 1


@pytest.mark.slow
def test_a_change_of_tables_does_not_stop_those_at_work(url, admin, postgres_database, monkeypatch):
    """The migration waits for short times only: a session that queues behind it waits no longer than one of
    them.
    """
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.2)
    asyncio.run(_opened(url))
    newer(monkeypatch, 2, "new", ["alter table workflow_run add column more integer"])

    async def main():
        admin.execute("begin; select 1 from workflow.workflow_run")
        opening = asyncio.create_task(_opened(url))
        await asyncio.sleep(0.1)
        with psycopg.connect(postgres_database.dsn, autocommit=True) as other:
            for _ in range(5):
                other.execute("set statement_timeout = '2s'")
                await asyncio.to_thread(other.execute, "select 1 from workflow.workflow_run")
        assert not opening.done()
        admin.execute("commit")
        await opening

    asyncio.run(main())
    assert stamp(admin)[1] == NEXT


@pytest.mark.slow
def test_a_migration_that_waits_too_long_says_so(url, admin, monkeypatch):
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 0.2)
    admin.execute(f"begin; select pg_advisory_xact_lock({migrate._LOCK}, hashtext('workflow'))")
    with pytest.raises(
        Unavailable, match=r"waited 0\.2 s for another process to bring the schema up to date"
    ):
        asyncio.run(_opened(url))


def test_a_file_that_fails_is_named_and_nothing_of_it_stays(url, admin, monkeypatch):
    monkeypatch.setattr(migrate, "functions", lambda: {"answer.sql": "select 1/0"})
    with pytest.raises(StoreError, match=r"division by zero \(in functions/answer\.sql, 22012\)"):
        asyncio.run(_opened(url))
    assert admin.execute("select to_regnamespace('workflow')").fetchone() == (None,)


def test_functions_find_their_tables_whatever_the_callers_search_path_is(url, postgres_database):
    asyncio.run(_opened(url + "&schema=elsewhere"))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog")
        assert connection.execute("select elsewhere.stats(45)").fetchone()


def made_by_older(url, monkeypatch, minor):
    """A store of a library that brought fewer tables, without functions."""
    tables = migrate.schemas()[:minor]
    with monkeypatch.context() as older:
        older.setattr(migrate, "schemas", lambda: tables)
        older.setattr(migrate, "functions", lambda: {"none.sql": "select 1"})
        older.setattr(migrate, "digest", lambda: "older")
        asyncio.run(_opened(url))


@pytest.mark.spec("STORE-5")
def test_a_migration_that_was_ended_goes_on_after_the_last_whole_file(url, admin, monkeypatch):
    """Each file is a transaction, which moves the minor version. The functions stay as they were."""
    made_by_older(url, monkeypatch, 2)
    tables = [*migrate.schemas()[:4], "select 1/0"]
    with monkeypatch.context() as broken:
        broken.setattr(migrate, "schemas", lambda: tables)
        with pytest.raises(StoreError, match=r"in schema/0005\.sql"):
            asyncio.run(_opened(url))
    assert stamp(admin) == (1, 4, migrate.FUNCTIONS, "older")
    asyncio.run(_opened(url))
    assert stamp(admin) == migrate.ours()


@pytest.mark.slow
@pytest.mark.spec("STORE-5")
def test_reads_go_on_while_a_migration_builds_indexes(url, admin, postgres_database, monkeypatch):
    """The lock of a table that an earlier file has changed is gone by then. Writes wait."""
    made_by_older(url, monkeypatch, 2)
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 30)
    tables = [*migrate.schemas()[:5], "select pg_advisory_xact_lock(77)", *migrate.schemas()[5:]]
    monkeypatch.setattr(migrate, "schemas", lambda: tables)
    waits = "select 1 from pg_locks where locktype = 'advisory' and not granted"

    async def main():
        admin.execute("begin; select pg_advisory_xact_lock(77)")
        opening = asyncio.create_task(_opened(url))
        await until(lambda: admin.execute(waits).fetchone())
        with psycopg.connect(postgres_database.dsn, autocommit=True) as other:
            other.execute("set statement_timeout = '100ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                other.execute("delete from workflow.workflow_run")
            other.execute("set statement_timeout = '5s'")
            other.execute("select 1 from workflow.workflow_run")
        admin.execute("commit")
        await opening

    asyncio.run(main())


ODD_LABELS = r'{"a": "\u00e9", "b": null}'


def test_labels_that_user_sql_has_written_do_not_stop_a_migration(url, admin, monkeypatch):
    """Labels with escapes are not checked: a null among them is no label. The others are found."""
    made_by_older(url, monkeypatch, 4)
    admin.execute(
        "insert into workflow.workflow_run (id, type, payload, labels, rev, tenant, run_at, digest, fence,"
        " inbox_mark, max_attempts, created_at, updated_at)"
        " values (gen_random_uuid(), 'a.b.v1', '1', %s, 1, 'default', now(), 'x', 1, 0, 3, now(), now())",
        (ODD_LABELS,),
    )
    asyncio.run(_opened(url))
    admin.execute("insert into workflow.workflow_run (type, labels) values ('a.b.v1', %s)", (ODD_LABELS,))
    assert admin.execute("select name, value from workflow.workflow_label").fetchall() == [("a", "é")] * 2
