"""The check-up of a server: its settings, and what may soon cause trouble."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import msgspec
import psycopg
import pytest

from holdfast.stores.postgres import PostgresStore, declared_indexes
from holdfast.stores.postgres.address import parsed
from holdfast.stores.postgres.checkup import Facts, Idle, Table, findings
from holdfast.stores.postgres.migrate import schemas
from tests.stores.postgres import kit

GOOD = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "track_counts": "on",
    "server_encoding": "UTF8",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
}

HERE = parsed("postgresql://host/db")


def facts(**changed):
    """The facts of a server that is set up well, with the changes of a test."""
    url, _ = kit.database()
    with psycopg.connect(url) as connection:
        (said,) = connection.execute("select workflow.checkup()").fetchone()
    found = msgspec.convert(said, Facts)
    settings = GOOD | changed.pop("settings", {})
    return msgspec.structs.replace(found, **{"settings": settings, "idle": [], **changed})


def bad(found, address=HERE, asked=None):
    """The findings that are not ok: level and text."""
    told = findings(found, address, asked or (found.now, found.now))
    assert all(one.mend for one in told if one.level != "ok")
    assert all("\n" not in one.what + one.mend for one in told)
    return [(one.level, one.what) for one in told if one.level != "ok"]


def test_a_server_that_is_as_it_should_be_has_nothing_but_good_findings():
    """Each finding says what was checked."""
    found = facts()
    assert bad(found) == []
    told = " ".join(one.what for one in findings(found, HERE, (found.now, found.now)))
    for what in ("Postgres 1", "fsync is on", "synchronous_commit", "connections", "transaction"):
        assert what in told
    for what in ("schema", "autovacuum", "dead rows", "indexes", "clock", "LISTEN"):
        assert what in told


@pytest.mark.parametrize(
    ("changed", "level", "what"),
    [
        ({"settings": {"fsync": "off"}}, "error", "fsync is off"),
        ({"settings": {"full_page_writes": "off"}}, "error", "full_page_writes is off"),
        ({"settings": {"synchronous_commit": "off"}}, "warning", "may undo the last commits"),
        ({"settings": {"autovacuum": "off"}}, "warning", "autovacuum is off"),
        ({"settings": {"track_counts": "off"}}, "warning", "track_counts is off"),
        ({"settings": {"server_encoding": "LATIN1"}}, "error", "encoding is LATIN1"),
        ({"settings": {"default_transaction_read_only": "on"}}, "error", "nothing can be written"),
        ({"settings": {"default_transaction_isolation": "serializable"}}, "error", "serializable"),
        ({"schema": (1, 99, 1)}, "warning", "version 1.99.1, this library's is 1."),
        ({"schema": (1, 0, 1)}, "warning", "version 1.0.1"),
        ({"standby": True}, "error", "the server is a standby"),
        ({"version": 120017}, "error", "the server is Postgres 12.17"),
        ({"connections": 90, "connections_max": 97}, "warning", "90 of 97 connections"),
        ({"idle": [Idle(7, "psql", 3600)]}, "warning", "pid 7 (psql, 3600 s)"),
        ({"idle": [Idle(n, "psql", 60) for n in range(5)]}, "warning", "and 2 more;"),
        ({"prepared": 2}, "warning", "2 prepared transactions"),
        ({"tables": {"workflow_run": Table(90_000, 60_000, vacuumed=True)}}, "warning", "60,000 dead rows"),
        ({"tables": {"workflow_run": Table(0, 0, vacuumed=False)}}, "warning", "off for workflow_run"),
    ],
)
def test_what_is_not_well_is_told_with_how_to_mend_it(changed, level, what):
    """One finding for one fault."""
    ((said, words),) = bad(facts(**changed))
    assert said == level
    assert what in words


def test_a_server_whose_owner_allows_it_to_forget_is_only_warned_of():
    """The URL allows it, for tests."""
    found = facts(settings={"fsync": "off"})
    (told,) = bad(found, HERE._replace(allow_fsync_off=True))
    assert told[0] == "warning"


def test_a_host_whose_clock_is_another_is_told_of():
    """The time that the question took is not counted."""
    found = facts()
    second = 1_000_000
    assert bad(found, asked=(found.now - 5 * second, found.now + 5 * second)) == []
    for off in (-9 * second, 9 * second):
        ((level, what),) = bad(found, asked=(found.now + off, found.now + off + second // 2))
        assert (level, "clock" in what) == ("warning", True)


def test_a_store_that_only_polls_says_so():
    """That is not a fault."""
    found = facts()
    told = findings(found, HERE._replace(listen=False), (found.now, found.now))
    assert ("ok", "polling only") in [(one.level, one.what[-12:]) for one in told]


def checked():
    """The findings of a store here that are not ok; its sessions start with the present settings."""
    store = PostgresStore(kit.database()[0] + "&allow_fsync_off=1")

    async def main():
        await store.open()
        try:
            return await store.checkup()
        finally:
            await store.close()

    return {one.what for one in asyncio.run(main()) if one.level != "ok"}


@contextmanager
def changed(there, back):
    """Change the database for a while."""
    _, connection = kit.database()
    connection.execute(there.format(connection.info.dbname))
    try:
        yield
    finally:
        connection.execute(back.format(connection.info.dbname))


INDEX = "idx_workflow_run_owes"
UNIQUE, KEYS = "idx_workflow_run_idempotency", "workflow.workflow_run (idempotency_key)"
CHANGES = {
    "track_counts is off": (
        "alter database {} set track_counts = off",
        "alter database {} reset track_counts",
    ),
    "autovacuum is off for workflow_run": (
        "alter table workflow.workflow_run set (autovacuum_enabled = false)",
        "alter table workflow.workflow_run reset (autovacuum_enabled)",
    ),
    f"indexes are missing: {INDEX}": (
        f"drop index workflow.{INDEX}",
        f"create index {INDEX} on workflow.workflow_run (id) where owes > 0",
    ),
    f"indexes are invalid: {INDEX}": (
        f"update pg_index set indisvalid = false where indexrelid = 'workflow.{INDEX}'::regclass",
        f"reindex index workflow.{INDEX}",
    ),
    "primary keys or unique constraints are missing: workflow_run_pkey": (
        "alter table workflow.workflow_run drop constraint workflow_run_pkey",
        "alter table workflow.workflow_run add primary key (id)",
    ),
    "primary keys or unique constraints are missing: workflow_step_run_id_key_key": (
        "alter table workflow.workflow_step drop constraint workflow_step_run_id_key_key",
        "alter table workflow.workflow_step add unique (run_id, key)",
    ),
    f"indexes are not unique: {UNIQUE}": (
        f"drop index workflow.{UNIQUE}; create index {UNIQUE} on {KEYS}",
        f"drop index workflow.{UNIQUE}; create unique index {UNIQUE} on {KEYS}",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_server_itself_is_asked(what):
    """The present state of the server, with whatever else is found."""
    before = checked()
    with changed(*CHANGES[what]):
        (said,) = checked() - before
    assert what in said
    assert checked() == before


def test_everything_that_is_unique_is_known_to_be():
    """The declarations read from the schema files are those of a database that was made from them."""
    found, text = facts(), "\n".join(schemas())
    stamp = {"workflow_schema_pkey"}  # the one table that is made without a file
    unique = {name for name, unique in declared_indexes.indexes(text).items() if unique} | set(
        declared_indexes.keys(text)
    )
    assert set(found.unique) == unique | stamp
    assert (
        set(found.indexes) == set(declared_indexes.indexes(text)) | set(declared_indexes.keys(text)) | stamp
    )


@pytest.mark.parametrize("name", sorted(declared_indexes.keys("\n".join(schemas()))))
def test_a_key_comes_back_by_the_statement_that_is_told(name):
    """Under the same name, so that the next check-up is satisfied."""
    _, connection = kit.database()
    with connection.transaction(force_rollback=True):
        connection.execute("set local search_path = workflow")
        table = connection.execute(
            "select conrelid::regclass from pg_constraint where conname = %s", (name,)
        ).fetchone()[0]
        connection.execute(f"alter table {table} drop constraint {name}")
        connection.execute(declared_indexes.keys("\n".join(schemas()))[name])
        again = "select count(*) from pg_index where indexrelid = to_regclass(%s) and indisunique"
        assert connection.execute(again, (name,)).fetchone() == (1,)
