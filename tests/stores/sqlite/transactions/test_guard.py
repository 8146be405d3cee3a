"""The guard of a user's function inside the store's commit: allowed actions, and detection of others."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import apsw
import pytest

from holdfast.errors import StepTimeout, Unavailable, UsageError
from holdfast.records import ANY, Lease, NewEvent
from holdfast.stores.sqlite.transactions import guard
from tests.stores.sqlite.files import ask, new_run, opened, raw_connection, with_store
from tests.stores.sqlite.transactions.holder import count, new_holder, up, with_counter, with_holder

PATIENCE = 10.0


@pytest.fixture
def path(tmp_path):
    return with_counter(tmp_path / "holdfast.db")


# Actions that are refused.


def runs(*statements):
    def function(connection):
        up(connection)
        for sql in statements:
            connection.execute(sql)

    return function


def swallows(sql):
    def function(connection):
        up(connection)
        with suppress(Exception):
            connection.execute(sql)
        return up(connection)

    return function


def closes(connection):
    up(connection)
    connection.close()


_kept = []


def leaves_open(connection):
    _kept.append(connection.execute("insert into counter values (7), (8) returning n"))


def goes_on_in_a_thread(connection):
    begun = threading.Event()
    connection.create_scalar_function("begun", lambda _: begun.set())
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(begun(i)) from n"

    def ask():
        with suppress(apsw.InterruptError):
            connection.execute(endless).fetchall()

    threading.Thread(target=ask, daemon=True).start()
    assert begun.wait(PATIENCE)


def takes_off_its_guard(connection):
    up(connection)
    connection.authorizer = None
    connection.execute("commit")


WRONG = {
    "calls commit": runs("/* hidden */ commit"),
    "calls commit, as `end`": runs("end"),
    "calls rollback": runs("rollback"),
    "calls begin": runs("begin"),
    "calls commit, and swallows it": swallows("commit"),
    "attaches or detaches a database": runs("attach ':memory:' as x"),
    "sets pragma journal_mode": runs("pragma journal_mode = delete"),
    "sets pragma writable_schema": runs("pragma writable_schema = on"),
    "writes to workflow_run": runs("update workflow_run set status = 'failed'"),
    "writes to workflow_step": runs("delete from workflow_step"),
    "writes to workflow_meta": runs("insert or rollback into workflow_meta values ('a', 'b')"),
    "writes to workflow_run, by dropping": runs("drop table workflow_run"),
    "writes to workflow_run, by a trigger on it": runs(
        "create trigger t after insert on workflow_run begin select 1; end"
    ),
    "writes to workflow_run, from a trigger": runs(
        "create temp trigger t after insert on named begin delete from workflow_run; end",
        "insert into named values ('b')",
    ),
    "writes to idx_workflow_run_claim": runs("drop index idx_workflow_run_claim"),
    "uses the savepoint holdfast_work": runs("release holdfast_work"),
    "uses the savepoint HOLDFAST_WORK": runs("release HOLDFAST_WORK"),
    "sets pragma schema_version": runs("pragma schema_version = 9999"),
    "sets pragma foreign_keys": runs("pragma foreign_keys = off"),
    "alters a temporary table": runs("create temp table t (id)", "alter table t rename to workflow_run"),
    "goes on writing after its transaction was rolled back": swallows(
        "insert or rollback into named values ('a')"
    ),
    "goes on writing after": takes_off_its_guard,
    "closes its connection": closes,
    "leaves a statement unfinished": leaves_open,
    "leaves a thread that uses its connection": goes_on_in_a_thread,
}


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("said", WRONG)
def test_a_function_that_does_what_is_the_engines_is_found_out_and_nothing_of_it_stays(path, said):
    async def story(store, hand):
        with pytest.raises(UsageError) as refused:
            await hand.send(WRONG[said])
        assert "\n" not in str(refused.value)
        # The store still works, and the number of the item can be used again.
        return str(refused.value), (await hand.send(up)).answer, await store.steps(hand.claim.id, ANY)

    message, answer, steps = with_holder(path, story)
    assert said.partition(",")[0] in message
    assert (answer, count(path), [step.key for step in steps]) == ("applied", 1, ["k2"])


@pytest.mark.spec("FLOW-16")
def test_a_thread_that_cannot_be_stopped_is_named_in_the_log_and_the_store_goes_on_when_it_ends(path, caplog):
    """The thread is inside its own code, called by SQLite, where no interrupt reaches it."""
    begun, go, thread = threading.Event(), threading.Event(), []

    def function(connection):
        connection.create_scalar_function("rest", lambda: begun.set() or go.wait(PATIENCE))
        thread.append(threading.Thread(target=connection.execute, args=("select rest()",)))
        thread[0].start()
        assert begun.wait(PATIENCE)

    async def story(_store, hand):
        with pytest.raises(UsageError, match="leaves a thread"):
            await hand.send(function)
        go.set()
        await asyncio.to_thread(thread[0].join)
        thread.clear()
        return (await hand.send(up)).answer

    assert with_holder(path, story) == "applied"
    assert "keeps its connection busy" in caplog.text


@pytest.mark.spec("FLOW-16")
def test_a_rollback_by_a_conflict_clause_is_found_out_even_when_nothing_is_written_after_it(path):
    def function(connection):
        try:
            connection.execute("insert or rollback into named values ('a')")
        except apsw.ConstraintError:
            return 1

    async def story(_store, hand):
        with pytest.raises(UsageError, match="rolls its transaction back"):
            await hand.send(function)

    with_holder(path, story)


@pytest.mark.spec("FLOW-16")
def test_what_it_may_do(path):
    """Tables of its own, savepoints in both spellings, looking at the engine's tables and at the schema."""

    def function(connection):
        with connection:
            up(connection)
        connection.execute("savepoint a")
        up(connection)
        connection.execute("rollback to a; release a")
        connection.execute("create table mine (x); insert into mine values (1); pragma user_version = 3")
        assert connection.execute("select status from workflow_run").fetchall() == [("leased",)]
        assert connection.execute("pragma table_info(mine)").fetchall()

    async def story(_store, hand):
        return (await hand.send(function)).answer

    assert with_holder(path, story) == "applied"
    assert count(path) == 1
    with raw_connection(path) as connection:
        assert connection.execute("pragma user_version").fetchall() == [(3,)]


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("name", ["foreign_keys", "schema_version"])
def test_it_may_ask_how_things_are_set(path, name):
    def function(connection):
        return connection.execute(f"pragma {name}").fetchall()[0][0]

    async def story(store, hand):
        await hand.send(function)
        return (await store.steps(hand.claim.id, ANY))[0].output

    assert int(with_holder(path, story)) > 0


_KIN = "create table parent (id integer primary key); create table child (p references parent (id) {})"


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("when", ["on delete cascade", "deferrable initially deferred"])
def test_foreign_keys_of_the_users_tables_hold(inline, when, tmp_path):
    """At the statement or, deferred, at the commit: the function has failed, and nothing of it stays."""

    async def story():
        async with opened(":memory:" if inline else tmp_path / "f.db") as store:
            holder = await new_holder(store)
            await store._write(lambda db, _: db.connection.execute(_KIN.format(when)).fetchall())
            with pytest.raises(apsw.ConstraintError, match="FOREIGN KEY"):
                await holder.send(lambda connection: connection.execute("insert into child values (99)"))
            await holder.send(lambda connection: connection.execute("insert into parent values (1)"))
            answer = (await holder.send(lambda c: c.execute("insert into child values (1)"))).answer
            ours = await store._write(lambda db, _: db.all("pragma foreign_keys"))
            return answer, ours

    assert asyncio.run(story()) == ("applied", [(0,)])


@pytest.mark.spec("FLOW-16")
def test_nothing_that_it_leaves_on_its_connection_is_met_again(path):
    def function(connection):
        connection.execute("create temp table scratch (x)")
        connection.create_scalar_function("one", lambda: 1)
        connection.row_trace, connection.exec_trace = (lambda *_: None), (lambda *_: False)
        connection.set_busy_timeout(0)
        return 1

    def looks(connection):
        with pytest.raises(apsw.SQLError, match="no such function"):
            connection.execute("select one()")
        return up(connection)

    async def story(_store, hand):
        return [(await hand.send(one)).answer for one in (function, function, looks)]

    assert with_holder(path, story) == ["applied"] * 3


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize(
    "error", [ValueError("no"), apsw.ConstraintError("no"), SystemExit(3), KeyboardInterrupt()]
)
def test_what_it_raises_comes_out_as_it_is(path, error):
    def function(connection):
        up(connection)
        raise error

    async def story(_store, hand):
        with pytest.raises(type(error)) as raised:
            await hand.send(function)
        return raised.value is error, (await hand.send(up)).answer

    assert with_holder(path, story) == (True, "applied")
    assert count(path) == 1


@pytest.mark.spec("FLOW-16")
def test_a_full_disk_is_the_stores_trouble_and_not_the_functions(path):
    """A repeat with the same number is applied once."""
    full = [True]

    def function(connection):
        up(connection)
        if full.pop() if full else False:
            raise apsw.FullError("database or disk is full")
        return 1

    async def story(store, hand):
        item = hand.item()
        work = hand.work(item, function)
        with pytest.raises(Unavailable, match="the disk is full"):
            await store.transact(item, work)
        return (await store.transact(item, work)).answer

    assert with_holder(path, story) == "applied"
    assert count(path) == 1


# The time limit.


@pytest.mark.spec("FLOW-16")
def test_a_statement_that_does_not_end_is_stopped_at_the_limit(path):
    sql = (
        "with recursive n(i) as (select 1 union all select i + 1 from n) insert into counter select i from n"
    )

    async def story(_store, hand):
        with pytest.raises(StepTimeout, match=r"longer than 0\.05 s"):
            await hand.send(runs(sql), limit=0.05)
        with pytest.raises((StepTimeout, UsageError)):
            await hand.send(swallows(sql), limit=0.05)

    with_holder(path, story)
    assert count(path) == 0


@pytest.mark.spec("FLOW-16")
def test_code_that_takes_too_long_is_found_out_at_its_end(path, monkeypatch):
    class Clock:
        at = 0.0

        def monotonic(self):
            return self.at

    clock = Clock()
    monkeypatch.setattr(guard, "time", clock)

    def function(connection):
        clock.at += 5.1
        return up(connection)

    async def story(_store, hand):
        with pytest.raises(StepTimeout, match="longer than 5 s"):
            await hand.send(function)
        return (await hand.send(function, limit=6)).answer

    assert with_holder(path, story) == "applied"
    assert count(path) == 1


# Calls of the engine from inside the function.


def through_a_thread(coroutine):
    """Run a coroutine like the blocking API: another thread has the loop, and gets the caller's context."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("way", [asyncio.run, through_a_thread])
def test_a_call_of_the_store_from_inside_is_refused_instead_of_hanging(path, way):
    async def story(store, hand):
        calls = {
            "start": lambda: store.start([new_run()]),
            "get": lambda: store.get(hand.claim.id, ANY),
            "transact": lambda: store.transact(hand.item(), up),
            "emit": lambda: store.emit(NewEvent(topic="t", id="e")),
        }

        def function(connection):
            for call in calls.values():
                with pytest.raises(UsageError, match="called from inside the function of a transaction"):
                    way(call())
            with pytest.raises(UsageError, match="called from inside"):
                store.renew("w", [Lease(run=hand.claim.id, fence=hand.claim.fence)], 30.0)
            with pytest.raises(UsageError, match="called from inside"):
                way(store.start([new_run()], connection))
            return up(connection)

        return (await hand.send(function)).answer, len(await store.claim(ask()))

    assert with_holder(path, story) == ("applied", 0)


@pytest.mark.spec("FLOW-16")
def test_another_store_may_be_called_from_inside(path, tmp_path):
    async def story(_store, hand):
        def function(connection):
            with_store(tmp_path / "other.db", lambda other: other.start([new_run()]))
            return up(connection)

        return (await hand.send(function)).answer

    assert with_holder(path, story) == "applied"
