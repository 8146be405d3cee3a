"""Connections of the caller: the accepted ones, the refused ones, and use beside an open store."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from holdfast import App
from holdfast.errors import SchemaMismatch, StoreError, Unavailable, UsageError
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.connection import other_sqlite
from tests.stores.sqlite.files import ask, new_run, raw_connection, until, with_store
from tests.stores.sqlite.transactions.caller import begun, emit, prepared, rows, start

PATIENCE = 20.0
_spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path):
    return prepared(tmp_path / "holdfast.db")


def _attached(path):
    connection = apsw.Connection(":memory:")
    connection.execute("attach ? as held", (str(path),))
    connection.execute("begin")
    return connection


def _elsewhere(path):
    return begun(path.with_name("other.db"))


def _hard_link(path):
    other = path.with_name("hard.db")
    other.hardlink_to(path)
    return begun(other)


def _converting(path):
    return sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES)


def _closed(path):
    connection = sqlite3.connect(path)
    connection.close()
    return connection


REFUSED = {
    "the driver's own, apsw.Connection or sqlite3.Connection": lambda _: object(),
    "begin one first, connection.execute('begin')": lambda path: apsw.Connection(str(path)),
    "begin one first": lambda path: sqlite3.connect(path, isolation_level=None),
    "other.db, and the store's file is": _elsewhere,
    "the connection is on memory": lambda _: begun(":memory:"),
    "is only attached to this connection": _attached,
    "another name of the store's file": _hard_link,
    "turns text into something else (detect_types": _converting,
    "the connection cannot be used here": _closed,
}
if sys.version_info >= (3, 12):
    REFUSED["no transaction open"] = lambda path: sqlite3.connect(path, autocommit=True)


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("said", REFUSED)
def test_a_connection_that_cannot_be_meant_is_refused_in_one_line(path, said, monkeypatch):
    monkeypatch.setitem(sqlite3.converters, "TEXT", lambda raw: ("text", raw))
    connection = REFUSED[said](path)
    with pytest.raises(UsageError) as refused:
        start(path, connection, new_run())
    with suppress(AttributeError):
        connection.close()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.spec("START-7")
def test_a_connection_of_another_thread_is_refused_where_its_driver_forbids_it(path):
    with ThreadPoolExecutor(1) as elsewhere:
        connection = elsewhere.submit(sqlite3.connect, path).result()
        with pytest.raises(UsageError, match="cannot be used here: SQLite objects created in a thread"):
            start(path, connection, new_run())
        elsewhere.submit(connection.close).result()


@pytest.mark.spec("START-7", "STORE-5")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop table workflow_meta", "no tables of Holdfast's yet"),
        ("update workflow_meta set value = '9' where key = 'major'", "major version 9"),
        ("update workflow_meta set value = '0' where key = 'minor'", "run `holdfast migrate` once"),
    ],
)
def test_a_schema_of_another_version_is_refused(path, change, said):
    with closing(begun(path)) as connection:
        connection.execute(change)
        with pytest.raises(SchemaMismatch, match=said):
            start(path, connection, new_run())


@pytest.mark.spec("START-7")
def test_a_transaction_that_was_overtaken_after_it_began_to_read_is_told_how_to_begin(path):
    with closing(begun(path)) as connection, closing(apsw.Connection(str(path))) as other:
        rows(connection, "select * from orders")
        other.execute("insert into orders values ('a')")
        with pytest.raises(Unavailable, match="has since yours began to read"):
            start(path, connection, new_run())


@pytest.mark.spec("START-7")
def test_a_read_only_file_and_a_broken_statement_are_our_own_errors(path):
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("pragma query_only = on")
        connection.execute("begin")
        with pytest.raises(StoreError):
            start(path, connection, new_run())


# Use beside an open store.


def insert_two(path, commits, go, done):
    """A process of the user with the standard library's sqlite3. No store is open in it."""
    with closing(sqlite3.connect(path)) as connection:
        start(path, connection, new_run())
        emit(path, connection)
        connection.execute("insert into orders values ('a')")
        done.set()
        assert go.wait(PATIENCE)
        getattr(connection, commits)()


@pytest.mark.slow
@pytest.mark.spec("START-7", "LEASE-3")
@pytest.mark.parametrize("commits", ["commit", "rollback"])
def test_nobody_claims_it_before_its_caller_in_another_process_commits(path, commits):
    go, done = _spawn.Event(), _spawn.Event()

    async def story(store):
        process = _spawn.Process(target=insert_two, args=(str(path), commits, go, done))
        process.start()
        await until(done.is_set)
        assert await store.claim(ask()) == []
        heard = []
        store.listen(lambda: heard.append(1))
        go.set()
        await asyncio.to_thread(process.join)
        claimed = await store.claim(ask())
        if commits == "commit":
            await until(lambda: heard)
        return len(claimed), await store.deliver(), process.exitcode

    assert with_store(path, story) == ((1 if commits == "commit" else 0), 0, 0)


@pytest.mark.slow
@pytest.mark.spec("START-7", "EVENT-1", "EVENT-3", "STORE-2")
def test_an_idle_worker_takes_it_once_it_is_committed_and_the_event_is_delivered(path):
    """Nothing calls the worker: it notices the commit of another process, and its keeper delivers."""

    async def story():
        app = App(f"sqlite:///{path}")

        @app.workflow("shop.order.v1")
        async def order(ctx, name: str):
            return name, (await ctx.await_event("paid", 30)).payload

        with raw_connection(path) as connection:
            async with app.worker(poll=30):
                await asyncio.sleep(0.1)  # until it is idle
                connection.execute("begin immediate")
                run = await app.start(order, "ada", connection=connection)
                await asyncio.sleep(0.1)
                assert await app.get(run.id) is None
                connection.execute("commit")
                await until(lambda: rows(connection, "select 1 from workflow_run where status = 'waiting'"))
                connection.execute("begin immediate")
                emitted = await app.emit("paid", 7, connection=connection)
                connection.execute("commit")
                result = await run.result(PATIENCE)
        await app.close()
        return emitted.woken, result

    assert asyncio.run(story()) == (None, ["ada", 7])


@pytest.mark.slow
@pytest.mark.spec("START-7", "STORE-2")
def test_a_long_transaction_of_the_users_holds_the_engine_up_and_no_longer(path, monkeypatch):
    """Commits that cannot be made meanwhile are made afterwards: no run fails for it, no step is lost."""
    monkeypatch.setattr(migrate, "BUSY_MS", 50)

    async def story():
        app, called = App(f"sqlite:///{path}"), []

        @app.workflow("shop.order.v1")
        async def order(ctx):
            for n in range(3):
                await ctx.step(f"s{n}", called.append, n)

        with raw_connection(path) as connection:
            async with app.worker():
                runs = [await app.start(order) for _ in range(5)]
                connection.execute("begin immediate")
                with pytest.raises(Unavailable):
                    await app.start(order)
                await asyncio.sleep(0.5)  # many times what a commit waits for the lock
                connection.execute("rollback")
                for run in runs:
                    await run.result(PATIENCE)
        await app.close()
        return sorted(called)

    assert asyncio.run(story()) == sorted([*range(3)] * 5)


# Two SQLite libraries in one process.


@pytest.mark.spec("START-7")
def test_sqlite3_is_refused_where_the_store_is_open_for_their_locks_do_not_see_each_other(path, monkeypatch):
    monkeypatch.setattr(other_sqlite, "ONE_LIBRARY", False)

    async def story(store):
        connection = earlier
        with pytest.raises(UsageError, match=r"use an apsw\.Connection") as refused:
            await store.start([new_run()], connection)
        return str(refused.value), connection.in_transaction

    earlier = sqlite3.connect(path)

    with closing(earlier):
        said, begun = with_store(path, story)
    assert "\n" not in said
    assert not begun


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("said", ["path", "bytes", "relative", "uri"])
def test_sqlite3_cannot_even_connect_to_a_file_that_a_store_has_open(path, monkeypatch, said):
    """It would destroy the file: its locks do not hold against the store's, and its close drops the
    store's locks."""
    if other_sqlite.ONE_LIBRARY:
        pytest.skip("apsw is on the system's own library here")
    monkeypatch.chdir(Path(path).parent)
    name = {"path": Path(path), "bytes": str(path).encode(), "relative": Path(path).name}.get(said)

    async def story(_store):
        with pytest.raises(UsageError, match="the file would be damaged"):
            sqlite3.connect(name or f"file:{path}?mode=ro", uri=said == "uri")
        sqlite3.connect(":memory:").close()

    with_store(path, story)
    sqlite3.connect(path).close()


@pytest.mark.spec("START-7")
def test_a_store_is_not_opened_where_its_file_was_written_through_sqlite3(path, monkeypatch):
    monkeypatch.setattr(other_sqlite, "ONE_LIBRARY", False)
    monkeypatch.setattr(other_sqlite, "_seen", set())
    with closing(sqlite3.connect(path)) as connection:
        start(path, connection, new_run())
        connection.commit()
    with pytest.raises(UsageError, match="ask and work in another process"):
        with_store(path, lambda store: store.now())


@pytest.mark.spec("START-7")
def test_it_is_true_that_two_libraries_lose_commits(tmp_path):
    """Two SQLite libraries damage the file: the reason for the two refusals above."""
    if not apsw.using_amalgamation:
        pytest.skip("apsw is on the system's own library here")
    path = str(tmp_path / "torn.db")
    with (
        closing(apsw.Connection(path)) as ours,
        closing(sqlite3.connect(path, isolation_level=None)) as theirs,
    ):
        rows(ours, "pragma journal_mode = wal")
        ours.execute("create table t (x); begin immediate; insert into t values ('ours')")
        theirs.execute("begin immediate")
        theirs.execute("insert into t values ('theirs')")
        theirs.execute("commit")
        ours.execute("commit")
        assert rows(ours, "select x from t") == [("ours",)]
