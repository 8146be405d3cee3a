"""start and emit in the caller's own transaction, on every kind of connection."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

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
from holdfast.records import ANY, Ask, NewEvent, NewRun, RunFilter
from holdfast.stores.postgres import PostgresStore
from tests.stores.postgres.caller.callers import KINDS, url
from tests.stores.postgres.kit import database, make
from tests.stores.postgres.sessions.opened import opened

TYPE = "shop.order.v1"


def new(**fields):
    return NewRun(**{"id": uuid4(), "type": TYPE, **fields})


@pytest.fixture
def store():
    admin = database()[1]
    admin.execute("create table if not exists public.orders (name text)")
    admin.execute("delete from public.orders")
    return make(None)


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return KINDS[request.param]


@asynccontextmanager
async def calling(kind, dsn=None):
    caller = kind()
    await caller.open(dsn or database()[0])
    try:
        await caller.begin()
        yield caller
    finally:
        await caller.close()


def seen(sql):
    """Rows that other sessions see."""
    return database()[1].execute(sql).fetchall()


@pytest.mark.spec("START-7", "LEASE-3")
async def test_a_run_is_there_once_its_caller_commits_with_the_callers_writes(store, kind):
    """Nobody can claim the run before the commit."""
    await store.open()
    async with calling(kind) as caller:
        await caller.run("insert into orders values ('ada')")
        run = new(key="k")
        (started,) = await store.start([run], caller.given)
        assert (started.id, started.created) == (run.id, True)
        ask = Ask(worker="w", types=(TYPE,), limit=9, lease_seconds=30.0)
        assert await store.claim(ask) == []
        await caller.commit()
        assert [claim.id for claim in await store.claim(ask)] == [run.id]
        assert seen("select name from public.orders") == [("ada",)]
    await store.close()


@pytest.mark.spec("START-7", "START-4")
async def test_rolled_back_it_never_existed_and_its_key_is_free(store, kind):
    async with calling(kind) as caller:
        await caller.run("insert into orders values ('ada')")
        await store.start([new(key="k")], caller.given)
        await caller.roll_back()
        for table in ("workflow.workflow_run", "workflow.workflow_event", "public.orders"):
            assert seen(f"select * from {table}") == []
        await caller.begin()
        (again,) = await store.start([new(key="k", digest="another")], caller.given)
        assert again.created
        await caller.roll_back()


@pytest.mark.spec("EVENT-1", "EVENT-2", "START-7")
async def test_an_event_is_recorded_with_the_callers_commit_and_nobody_knows_yet_whom_it_wakes(store, kind):
    event = NewEvent(topic="paid", id="e1")
    async with calling(kind) as caller:
        assert (await store.emit(event, caller.given)).woken is None
        await caller.roll_back()
        await caller.begin()
        assert not (await store.emit(event, caller.given)).duplicate
        assert (await store.emit(event, caller.given)).duplicate
        await caller.commit()
    assert seen("select topic, delivered, late from workflow.workflow_inbox") == [("paid", False, True)]


@pytest.mark.spec("START-7", "START-4", "START-5", "START-8", "EVENT-7")
async def test_what_is_refused_is_an_answer_and_the_callers_transaction_goes_on(store, kind):
    """Also after a refusal by the database itself; no part of that call stays."""
    first, ended = new(key="k", digest="d"), new()
    await store.open()
    await store.start([first, ended])
    await store.cancel(ended.id, ANY)
    database()[1].execute(BAD)
    async with calling(kind) as caller:
        await caller.run("insert into orders values ('ada')")
        same, reused, doubled, orphan, fresh = await store.start(
            [
                new(key="k", digest="d"),
                new(key="k", digest="e"),
                new(id=first.id),
                new(parent=uuid4()),
                new(),
            ],
            caller.given,
        )
        assert (same.id, same.created, fresh.created) == (first.id, False, True)
        assert [type(one) for one in (reused, doubled, orphan)] == [KeyReused, DuplicateRun, UnknownRun]
        with pytest.raises(UnknownRun):
            await store.emit(NewEvent(topic="t", id="e1", run=uuid4()), caller.given)
        with pytest.raises(IllegalMove):
            await store.emit(NewEvent(topic="t", id="e2", run=ended.id), caller.given)
        with pytest.raises(StoreError, match="not this one"):
            await store.start([new(), new(type="shop.bad.v1")], caller.given)
        await caller.run("insert into orders values ('bob')")
        await caller.commit()
    database()[1].execute("drop trigger no_bad on workflow.workflow_run")
    assert seen("select name from public.orders") == [("ada",), ("bob",)]
    assert {run.id for run in await store.list(RunFilter(), 9)} == {first.id, ended.id, fresh.id}
    await store.close()


BAD = """
create or replace function public.no_bad() returns trigger language plpgsql as $$
begin
    if new.type = 'shop.bad.v1' then
        raise exception 'not this one';
    end if;
    return new;
end $$;
create or replace trigger no_bad before insert on workflow.workflow_run
for each row execute function public.no_bad()
"""


@pytest.mark.spec("START-7")
async def test_a_transaction_that_has_failed_before_is_told_so(store, kind):
    async with calling(kind) as caller:
        with pytest.raises(Exception, match="no_such_table"):
            await caller.run("select * from no_such_table")
        with pytest.raises(UsageError, match="has failed before this call"):
            await store.start([new()], caller.given)
        await caller.roll_back()


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("with_store", [False, True], ids=["without a store", "with one"])
async def test_one_that_is_on_another_database_is_refused(store, kind, postgres_server, with_store):
    """Also on another database of the same server that has a store in the same schema."""
    name = f"elsewhere{with_store:d}"
    if name not in _others:
        postgres_server.create_database(name)
        if with_store:
            async with opened(postgres_server.url(name)):
                pass
        _others.add(name)
    async with calling(kind, postgres_server.dsn(name)) as caller:
        for call in (
            store.start([new()], caller.given),
            store.emit(NewEvent(topic="t", id="e"), caller.given),
        ):
            with pytest.raises(UsageError, match=r"on a database without|another database") as refused:
                await call
            assert "\n" not in str(refused.value)
            await caller.roll_back()
            await caller.begin()
        await caller.commit()
    if with_store:
        with psycopg.connect(postgres_server.dsn(name)) as other:
            assert other.execute("select * from workflow.workflow_run").fetchall() == []


_others: set[str] = set()


# Connections without a transaction, and of unknown kinds.


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("level", ["psycopg", "asyncpg", "sync", "session", "async", "async asyncpg"])
async def test_one_that_is_in_no_transaction_is_refused(store, level):
    async with _without(level) as given:
        for call in (store.start([new()], given), store.emit(NewEvent(topic="t", id="e"), given)):
            with pytest.raises(UsageError, match="has no transaction open"):
                await call
    assert seen("select * from workflow.workflow_run") == []
    assert seen("select * from workflow.workflow_inbox") == []


@asynccontextmanager
async def _without(level):
    dsn = database()[0]
    auto = {"isolation_level": "AUTOCOMMIT"}
    if level == "psycopg":
        with psycopg.connect(dsn, autocommit=True) as given:
            yield given
    elif level == "asyncpg":
        given = await asyncpg.connect(dsn)
        yield given
        await given.close()
    elif level in {"sync", "session"}:
        engine = sa.create_engine(url(dsn, "psycopg"), **auto)
        with engine.connect() if level == "sync" else orm.Session(engine) as given:
            yield given
        engine.dispose()
    else:
        engine = sa_async.create_async_engine(
            url(dsn, "asyncpg" if "asyncpg" in level else "psycopg"), **auto
        )
        async with engine.connect() as given:
            yield given
        await engine.dispose()


@pytest.mark.spec("START-7")
async def test_one_of_no_known_kind_is_refused_and_so_is_one_that_is_closed(store):
    closed = psycopg.connect(database()[0])
    closed.close()
    with pytest.raises(UsageError, match="closed"):
        await store.start([new()], closed)
    engine = sa.create_engine("sqlite://")
    with engine.connect() as lite, pytest.raises(UsageError, match="the connection is on sqlite"):
        await store.start([new()], lite)
    engine.dispose()
    with pytest.raises(UsageError, match=r"connection=<builtins\.object>: give one of asyncpg or psycopg"):
        await store.emit(NewEvent(topic="t", id="e"), object())


@pytest.mark.spec("START-7")
async def test_a_session_that_must_be_begun_by_hand_and_was_not_is_refused(store):
    engine = sa.create_engine(url(database()[0], "psycopg"))
    with orm.Session(engine, autobegin=False) as session:
        with pytest.raises(UsageError, match="cannot be used here"):
            await store.start([new()], session)
        with session.begin():
            (started,) = await store.start([new()], session)
    engine.dispose()
    assert seen("select id from workflow.workflow_run") == [(started.id,)]


@pytest.mark.spec("START-7")
async def test_a_store_that_is_not_there_yet_is_named_before_anything_is_sent(postgres_database):
    store = PostgresStore(postgres_database.url)
    with psycopg.connect(postgres_database.dsn) as connection:
        with pytest.raises(SchemaMismatch, match="run `holdfast migrate` once"):
            await store.start([new()], connection)
        assert connection.info.transaction_status.name == "IDLE"


# Isolation levels, and collisions.


@pytest.mark.spec("START-7")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_one_that_was_overtaken_is_its_callers_to_run_again(store, level):
    """The caller's transaction has failed, as with any statement of the caller: only the caller knows its
    content.
    """
    await store.open()
    with psycopg.connect(database()[0]) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
        connection.execute("select 1 from orders")
        await store.start([new(key="k")])
        with pytest.raises(Unavailable, match=r"overtaken by another one.*run it again") as told:
            await store.start([new(key="k")], connection)
        assert told.value.__cause__.sqlstate == "40001"
        assert connection.info.transaction_status.name == "INERROR"
        connection.rollback()
        (started,) = await store.start([new(key="j")], connection)
        assert started.created
        connection.commit()
    await store.close()


@pytest.mark.spec("START-7", "START-4")
async def test_two_callers_with_one_key_are_one_run(store):
    """The second caller waits for the first, and gets the first caller's run."""
    async with calling(KINDS["AsyncPsycopg"]) as first, calling(KINDS["Asyncpg"]) as second:
        (mine,) = await store.start([new(key="k", digest="d")], first.given)
        waiting = asyncio.ensure_future(store.start([new(key="k", digest="d")], second.given))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        await first.commit()
        (other_run,) = await waiting
        assert (other_run.id, other_run.created) == (mine.id, False)
        await second.roll_back()


@pytest.mark.spec("START-7")
async def test_a_server_that_was_started_anew_is_asked_again_where_it_is(store):
    """The database's former identity is no reason for a refusal."""
    store._database_id = "1/1"
    async with calling(KINDS["Psycopg"]) as caller:
        (started,) = await store.start([new()], caller.given)
        assert started.created
        await caller.commit()
