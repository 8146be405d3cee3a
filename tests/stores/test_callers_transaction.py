"""Starts and emits in the caller's own transaction: there when he commits, and else never."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import sys
import threading
from contextlib import closing

import apsw
import pytest

from holdfast import App
from holdfast.errors import (
    DuplicateRun,
    IllegalMove,
    KeyReused,
    SchemaMismatch,
    StoreError,
    Unavailable,
    UnknownRun,
    UsageError,
)
from holdfast.records import NewEvent
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore, migrate, strangers
from tests.stores.files import ask, live, new_run, opened, until

PATIENCE = 20.0
_spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path):
    """A file that is up to date and open nowhere, with a table of the user's own."""
    path = tmp_path / "holdfast.db"
    live(path, lambda store: store.now())
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table orders (name text)")
    return path


def _apsw(path):
    connection = apsw.Connection(str(path))
    connection.execute("begin")
    return connection


def _begun(path, **options):
    connection = sqlite3.connect(path, **options)
    connection.execute("begin")
    return connection


# How a connection may come: apsw's, and sqlite3's in each of its modes.
MODES = {
    "apsw": _apsw,
    "sqlite3": sqlite3.connect,
    "sqlite3, immediate": lambda path: sqlite3.connect(path, isolation_level="IMMEDIATE"),
    "sqlite3, begun": lambda path: _begun(path, isolation_level=None),
}
if sys.version_info >= (3, 12):
    MODES["sqlite3, autocommit off"] = lambda path: sqlite3.connect(path, autocommit=False)
    MODES["sqlite3, autocommit on, begun"] = lambda path: _begun(path, autocommit=True)


@pytest.fixture(params=sorted(MODES))
def connection(request, path):
    with closing(MODES[request.param](str(path))) as connection:
        yield connection


def start(path, connection, *runs):
    """By a store that is not open, as in a process that only starts."""
    return asyncio.run(SqliteStore(str(path)).start(runs, connection))


def emit(path, connection, **fields):
    event = NewEvent(**{"topic": "paid", "id": "e1"} | fields)
    return asyncio.run(SqliteStore(str(path)).emit(event, connection))


def rows(connection, sql):
    return connection.execute(sql).fetchall()


def end(connection, how):
    """As the user does it."""
    connection.execute(how)


@pytest.mark.spec("START-7")
def test_a_run_is_there_once_its_caller_commits_beside_what_he_wrote(path, connection):
    run = new_run(key="k")
    (started,) = start(path, connection, run)
    connection.execute("insert into orders values ('a')")
    assert (started.id, started.created, connection.in_transaction) == (run.id, True, True)
    with closing(apsw.Connection(str(path))) as other:
        assert rows(other, "select count(*) from workflow_run") == [(0,)]
    end(connection, "commit")
    assert rows(connection, "select id, status from workflow_run") == [(str(run.id), "pending")]
    assert rows(connection, "select event_type from workflow_event") == [("created",)]
    assert rows(connection, "select name from orders") == [("a",)]


@pytest.mark.spec("START-7", "START-4")
def test_rolled_back_it_never_existed_and_its_key_is_free(path, connection):
    connection.execute("insert into orders values ('a')")
    start(path, connection, new_run(key="k"))
    end(connection, "rollback")
    for table in ("workflow_run", "workflow_event", "orders"):
        assert rows(connection, f"select count(*) from {table}") == [(0,)]
    connection.execute("begin")
    (again,) = start(path, connection, new_run(key="k", digest="another"))
    assert again.created


@pytest.mark.spec("START-7", "START-4", "START-5", "START-8")
def test_conflicts_are_the_answers_they_always_are_and_the_others_are_started(path, connection):
    first = new_run(key="k", digest="d")
    start(path, connection, first)
    end(connection, "commit")
    connection.execute("begin")
    same, reused, doubled, fresh = start(
        path,
        connection,
        new_run(key="k", digest="d"),
        new_run(key="k", digest="e"),
        new_run(id=first.id),
        new_run(),
    )
    assert (same.id, same.created) == (first.id, False)
    assert isinstance(reused, KeyReused)
    assert isinstance(doubled, DuplicateRun)
    assert fresh.created
    end(connection, "commit")
    assert rows(connection, "select count(*) from workflow_run") == [(2,)]


@pytest.mark.spec("EVENT-1", "EVENT-2")
def test_an_event_is_recorded_with_the_callers_commit_and_nobody_knows_yet_whom_it_wakes(path, connection):
    emitted = emit(path, connection)
    assert (emitted.woken, emitted.duplicate) == (None, False)
    end(connection, "rollback")
    connection.execute("begin")
    assert not emit(path, connection).duplicate
    assert emit(path, connection).duplicate
    end(connection, "commit")
    assert rows(connection, "select topic, delivered from workflow_inbox") == [("paid", 0)]


@pytest.mark.spec("EVENT-7", "START-7")
def test_a_call_that_fails_leaves_what_the_caller_wrote_before_it(path, connection):
    start(path, connection, new_run())
    connection.execute("insert into orders values ('a')")
    with pytest.raises(UnknownRun):
        emit(path, connection, run=new_run().id)
    end(connection, "commit")
    assert rows(connection, "select count(*) from workflow_run") == [(1,)]
    assert rows(connection, "select count(*) from orders") == [(1,)]


@pytest.mark.spec("START-7")
def test_a_call_that_fails_in_the_middle_leaves_no_half(path, connection):
    with closing(apsw.Connection(str(path))) as other:
        other.execute(
            "create trigger no before insert on workflow_run when new.type = 'shop.bad.v1' "
            "begin select raise(abort, 'not this one'); end"
        )
    connection.execute("insert into orders values ('a')")
    with pytest.raises(StoreError, match="not this one"):
        start(path, connection, new_run(), new_run(type="shop.bad.v1"))
    end(connection, "commit")
    assert rows(connection, "select count(*) from workflow_run") == [(0,)]
    assert rows(connection, "select count(*) from orders") == [(1,)]


@pytest.mark.spec("EVENT-7")
def test_an_event_for_a_run_that_has_ended_is_a_conflict_here_too(path):
    run = new_run()

    async def ended(store):
        await store.start([run])
        await store.cancel(run.id)

    live(path, ended)
    with closing(_apsw(path)) as connection, pytest.raises(IllegalMove):
        emit(path, connection, run=run.id)


def _traced(path):
    connection = _apsw(path)
    connection.row_trace = lambda _cursor, row: {"row": row}
    connection.exec_trace = lambda *_: False
    return connection


def _made_strange(path):
    connection = sqlite3.connect(path)
    connection.row_factory, connection.text_factory = sqlite3.Row, bytes
    return connection


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("made", [_traced, _made_strange])
def test_what_its_owner_has_set_neither_disturbs_nor_is_changed(path, made):
    with closing(made(str(path))) as connection:
        looks = ("row_trace", "exec_trace", "row_factory", "text_factory")
        before = {name: getattr(connection, name) for name in looks if hasattr(connection, name)}
        run = new_run(key="k", digest="d")
        assert [one.created for one in start(path, connection, run)] == [True]
        assert [one.id for one in start(path, connection, new_run(key="k", digest="d"))] == [run.id]
        assert {name: getattr(connection, name) for name in before} == before


def _attached(path):
    connection = apsw.Connection(":memory:")
    connection.execute("attach ? as held", (str(path),))
    connection.execute("begin")
    return connection


def _elsewhere(path):
    return _apsw(path.with_name("other.db"))


def _closed(path):
    connection = sqlite3.connect(path)
    connection.close()
    return connection


def _of_another_thread(path):
    made = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(path)))
    thread.start()
    thread.join()
    return made[0]


REFUSED = {
    "the driver's own, apsw.Connection or sqlite3.Connection": lambda _: object(),
    "begin one first, connection.execute('begin')": lambda path: apsw.Connection(str(path)),
    "begin one first": lambda path: sqlite3.connect(path, isolation_level=None),
    "other.db, and the store's file is": _elsewhere,
    "the connection is on memory": lambda _: _apsw(":memory:"),
    "is only attached to this connection": _attached,
    "the connection cannot be used here": _closed,
    "the connection cannot be used here: SQLite objects created in a thread": _of_another_thread,
}
if sys.version_info >= (3, 12):
    REFUSED["no transaction open"] = lambda path: sqlite3.connect(path, autocommit=True)


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("said", REFUSED)
def test_a_connection_that_cannot_be_meant_is_refused_in_one_line(path, said):
    connection = REFUSED[said](path)
    with pytest.raises(UsageError) as refused:
        start(path, connection, new_run())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


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
    with closing(_apsw(path)) as connection:
        connection.execute(change)
        with pytest.raises(SchemaMismatch, match=said):
            start(path, connection, new_run())


@pytest.mark.spec("START-7")
def test_a_file_that_another_one_is_writing_is_unavailable_in_one_line(path, connection):
    # Of the same library, or neither would see the other's lock.
    ours = isinstance(connection, apsw.Connection)
    with closing(
        apsw.Connection(str(path)) if ours else sqlite3.connect(path, isolation_level=None)
    ) as other:
        connection.execute("pragma busy_timeout = 10")
        other.execute("begin immediate")
        with pytest.raises(Unavailable, match="begin immediate") as busy:
            start(path, connection, new_run())
        assert "\n" not in str(busy.value)
        other.execute("rollback")
    assert start(path, connection, new_run())[0].created


@pytest.mark.spec("START-7")
def test_a_transaction_that_was_overtaken_after_it_began_to_read_is_told_how_to_begin(path):
    with closing(_apsw(path)) as connection, closing(apsw.Connection(str(path))) as other:
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


# Beside a store that is open.


def insert_two(path, commits, go, done):
    """A process of the user's with the standard library's sqlite3, in which no store is open."""
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

    assert live(path, story) == ((1 if commits == "commit" else 0), 0, 0)


@pytest.mark.slow
@pytest.mark.spec("START-7", "EVENT-1", "EVENT-3", "STORE-2")
def test_an_idle_worker_takes_it_once_it_is_committed_and_the_event_is_delivered(path):
    """Nothing is told: the worker notices a commit that is not its own store's, and its keeper delivers."""

    async def story():
        app = App(f"sqlite:///{path}")

        @app.workflow("shop.order.v1")
        async def order(ctx, name: str):
            return name, (await ctx.await_event("paid", 30)).payload

        with closing(apsw.Connection(str(path))) as connection:
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

        with closing(apsw.Connection(str(path))) as connection:
            async with app.worker():
                runs = [await app.start(order) for _ in range(5)]
                connection.set_busy_timeout(5000)
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
    from holdfast.stores.sqlite import guests

    monkeypatch.setattr(guests, "ONE_LIBRARY", False)

    async def story(store):
        with closing(sqlite3.connect(path)) as connection:
            with pytest.raises(UsageError, match=r"give an apsw\.Connection") as refused:
                await store.start([new_run()], connection)
            return str(refused.value), connection.in_transaction

    said, begun = live(path, story)
    assert "\n" not in said
    assert not begun


@pytest.mark.spec("START-7")
def test_a_store_is_not_opened_where_its_file_was_written_through_sqlite3(path, monkeypatch):
    from holdfast.stores.sqlite import guests

    monkeypatch.setattr(guests, "ONE_LIBRARY", False)
    monkeypatch.setattr(strangers, "_seen", set())
    with closing(sqlite3.connect(path)) as connection:
        start(path, connection, new_run())
        connection.commit()
    with pytest.raises(UsageError, match="ask and work in another process"):
        live(path, lambda store: store.now())


@pytest.mark.spec("START-7")
def test_it_is_true_that_two_libraries_lose_commits(tmp_path):
    """Why the two refusals above are there. Should this ever fail, they can go."""
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


# The doors.


@pytest.mark.spec("START-7", "START-5", "EVENT-1")
def test_an_app_takes_it_in_start_start_many_and_emit(path):
    async def story():
        app = App(f"sqlite:///{path}")

        @app.workflow("shop.order.v1")
        async def order(ctx, name: str):
            return name

        with closing(_apsw(path)) as connection:
            one = await app.start(order, "ada", key="one", connection=connection)
            two, three = await app.start_many(
                [(order, "bob"), ("shop.order.v1", "cy", {"key": "one"})], connection=connection
            )
            emitted = await app.emit("paid", connection=connection)
            with pytest.raises(UsageError, match=r"as in shop\.order\.v1"):
                await app.start("shop.order", "ada", connection=connection)
            with pytest.raises(UsageError, match=r"start_many\(\[…\], connection=connection\)"):
                await app.start_many([(order, "ada", {"connection": connection})])
            connection.execute("commit")
        async with app.worker():
            results = await one.result(PATIENCE), await two.result(PATIENCE)
        await app.close()
        return one.created, isinstance(three, KeyReused), emitted.woken, results

    assert asyncio.run(story()) == (True, True, None, ("ada", "bob"))


@pytest.mark.spec("START-7")
def test_the_blocking_door_uses_it_on_the_callers_own_thread(path):
    """sqlite3 forbids any other, and needs none."""
    app = App(f"sqlite:///{path}")
    threads = threading.active_count()
    with closing(sqlite3.connect(path)) as connection:
        run = app.sync.start("shop.order.v1", connection=connection)
        (again,) = app.sync.start_many([("shop.order.v1", None)], connection=connection)
        assert app.sync.emit("paid", connection=connection).woken is None
        connection.commit()
        ids = {row[0] for row in rows(connection, "select id from workflow_run")}
    assert ids == {str(run.id), str(again.id)}
    assert threading.active_count() == threads


@pytest.mark.spec("START-7", "EVENT-1", "FLOW-16")
def test_the_memory_store_has_no_transaction_to_share():
    store = MemoryStore()
    for call in (
        store.start([new_run()], object()),
        store.emit(NewEvent(topic="t", id="e"), object()),
        store.transact(None, lambda _: None),
    ):
        with pytest.raises(UsageError, match="the memory store has no database"):
            asyncio.run(call)


@pytest.mark.spec("START-7")
def test_a_store_in_memory_is_nobodys_file():
    async def story():
        async with opened(":memory:") as store:
            with closing(_apsw(":memory:")) as connection, pytest.raises(UsageError, match="on memory"):
                await store.start([new_run()], connection)
            return await store.claim(ask())

    assert asyncio.run(story()) == []
