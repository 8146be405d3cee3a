"""Starts and emits in the caller's own transaction: they exist after the caller's commit, else never."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from contextlib import closing
from uuid import uuid4

import apsw
import pytest

from holdfast import App, Compress
from holdfast.errors import (
    DuplicateRun,
    IllegalMove,
    KeyReused,
    StoreError,
    Unavailable,
    UnknownRun,
    UsageError,
)
from holdfast.records import ANY, Item, NewEvent
from holdfast.records.moves import CHECKPOINT
from holdfast.stores.memory import MemoryStore
from tests.stores.sqlite.files import ask, new_run, opened, with_store
from tests.stores.sqlite.transactions.caller import begun, emit, end, prepared, rows, start

PATIENCE = 20.0


@pytest.fixture
def path(tmp_path):
    return prepared(tmp_path / "holdfast.db")


def _begun(path, **options):
    connection = sqlite3.connect(path, **options)
    connection.execute("begin")
    return connection


# Kinds of connections: apsw's, and sqlite3's in each of its modes.
MODES = {
    "apsw": begun,
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


@pytest.mark.spec("START-7")
def test_a_run_exists_once_its_caller_commits_together_with_the_callers_rows(path, connection):
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
        await store.cancel(run.id, ANY)

    with_store(path, ended)
    with closing(begun(path)) as connection, pytest.raises(IllegalMove):
        emit(path, connection, run=run.id)


def _traced(path):
    connection = begun(path)
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


@pytest.mark.spec("START-7")
def test_a_file_that_another_one_is_writing_is_unavailable_in_one_line(path, connection):
    # Both use the same SQLite library: else neither would see the lock of the other.
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


# The async and the blocking API.


@pytest.mark.spec("START-7", "START-5", "EVENT-1")
def test_an_app_takes_it_in_start_start_many_and_emit(path):
    async def story():
        app = App(f"sqlite:///{path}")

        @app.workflow("shop.order.v1")
        async def order(ctx, name: str):
            return name

        with closing(begun(path)) as connection:
            one = await app.start(order, "ada", key="one", connection=connection)
            two, three = await app.start_many(
                [(order, "bob"), ("shop.order.v1", "cy", {"key": "one"})], connection=connection
            )
            emitted = await app.emit("paid", connection=connection)
            with pytest.raises(UsageError, match=r"as in shop\.order\.v1"):
                await app.start("shop.order", "ada", connection=connection)
            (wrong,) = await app.start_many([(order, "ada", {"connection": connection})])
            assert "start_many([…], connection=connection)" in str(wrong)
            connection.execute("commit")
        async with app.worker():
            results = await one.result(PATIENCE), await two.result(PATIENCE)
        await app.close()
        return one.created, isinstance(three, KeyReused), emitted.woken, results

    assert asyncio.run(story()) == (True, True, None, ("ada", "bob"))


@pytest.mark.spec("START-7", "START-4")
def test_values_are_sealed_here_too_and_a_conflict_is_told_without_opening_the_store(path):
    app = App(f"sqlite:///{path}", codec=Compress(min_bytes=1))

    @app.workflow("shop.order.v1")
    async def order(ctx, name: str):
        return name

    with closing(begun(path)) as connection:
        app.sync.start(order, "a" * 1000, key="k", connection=connection)
        with pytest.raises(KeyReused):
            app.sync.start(order, "b" * 1000, key="k", connection=connection)
        ((payload,),) = rows(connection, "select payload from workflow_run")
    assert "aaaa" not in payload


@pytest.mark.spec("START-7")
def test_the_sync_app_uses_it_on_the_callers_own_thread(path):
    """sqlite3 connections must be used on the thread that made them."""
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
        store.transact(Item(run=uuid4(), fence=1, number=1, move=CHECKPOINT), lambda _: None),
    ):
        with pytest.raises(UsageError, match="the memory store has no database"):
            asyncio.run(call)


@pytest.mark.spec("START-7")
def test_a_store_in_memory_is_nobodys_file():
    async def story():
        async with opened(":memory:") as store:
            with closing(begun(":memory:")) as connection, pytest.raises(UsageError, match="on memory"):
                await store.start([new_run()], connection)
            return await store.claim(ask())

    assert asyncio.run(story()) == []
