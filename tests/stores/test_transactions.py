"""transact: a checkpoint and what a function of the user's has written are one commit, whatever happens."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, suppress

import apsw
import msgspec
import pytest

from holdfast.errors import StepTimeout, Unavailable, UsageError
from holdfast.lifecycle import Move
from holdfast.records import Item, Lease, NewEvent, StepWrite, TrailWrite
from holdfast.stores.sqlite import guard
from tests.stores.files import ask, live, new_run, opened, plain, until

PATIENCE = 10.0


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "holdfast.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("create table counter (n integer); insert into counter values (0)")
        connection.execute("create table named (name text unique); insert into named values ('a')")
    return path


def count(path):
    with plain(path) as connection:
        return connection.execute("select n from counter").fetchall()[0][0]


def up(connection):
    connection.execute("update counter set n = n + 1")
    return connection.execute("select n from counter").fetchall()[0][0]


class Hand:
    """A holder of one run, who numbers what he sends."""

    def __init__(self, store, claim):
        self.store, self.claim, self.number = store, claim, 0
        self.called = 0

    def item(self, **fields):
        self.number += 1
        return Item(
            **{
                "run": self.claim.id,
                "fence": self.claim.fence,
                "number": self.number,
                "move": Move.CHECKPOINT,
            }
            | fields
        )

    def work(self, item, function, key=None):
        def work(connection):
            self.called += 1
            write = StepWrite(key=key or f"k{item.number}", output=str(function(connection)))
            return msgspec.structs.replace(item, steps=(*item.steps, write))

        return work

    async def send(self, function, limit=5.0, key=None, **fields):
        item = self.item(**fields)
        return await self.store.transact(item, self.work(item, function, key), limit)


async def hand(store, **fields):
    await store.start([new_run(**fields)])
    (claim,) = await store.claim(ask())
    return Hand(store, claim)


def told(path, story):
    """A story of one holder and an open store."""

    async def with_hand(store):
        return await story(store, await hand(store))

    return live(path, with_hand)


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_the_functions_writes_and_all_of_the_item_are_one_commit(path):
    async def story(store, hand):
        item = hand.item(steps=(StepWrite(key="before"),), trail=(TrailWrite("log", '{"message":"one"}'),))

        def work(connection):
            write = StepWrite(key="count", output=str(up(connection)), cost=5)
            return msgspec.structs.replace(
                item,
                steps=(*item.steps, write),
                events=(NewEvent(topic="counted", id="e"),),
                trail=(*item.trail, TrailWrite("log", '{"message":"two"}')),
            )

        before = store._committer.commits
        verdict = await store.transact(item, work)
        run = await store.get(hand.claim.id)
        steps, trail = await store.steps(run.id), await store.trail(run.id)
        return (
            verdict.answer,
            store._committer.commits - before,
            run.cost,
            steps,
            trail,
            await store.deliver(),
        )

    answer, commits, cost, steps, trail, _ = told(path, story)
    assert (answer, commits, count(path)) == ("applied", 1, 1)
    assert [(step.key, step.output) for step in steps] == [("before", None), ("count", "1")]
    assert [entry.type for entry in trail][2:] == ["log", "log", "step_succeeded", "step_succeeded"]
    assert cost > 0


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_the_same_item_again_does_not_call_the_function_and_is_answered_as_the_first_time(path):
    async def story(store, hand):
        item = hand.item()
        work = hand.work(item, up)
        first = await store.transact(item, work)
        later = await store.commit([hand.item(steps=(StepWrite(key="later"),))])
        again = await store.transact(item, work)
        await store.commit([hand.item(move=Move.COMPLETE)])
        ended = await store.transact(item, work)
        return first == again == ended, later[0].answer, hand.called

    assert told(path, story) == (True, "applied", 1)
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "LEASE-4", "CANC-2")
def test_who_does_not_hold_the_run_is_refused_before_his_function_is_called(path):
    async def story(store, hand):
        await store.cancel(hand.claim.id)
        cancelled = await hand.send(up)
        return cancelled.answer, hand.called

    assert told(path, story) == ("cancelled", 0)
    assert count(path) == 0


@pytest.mark.spec("FLOW-16", "LEASE-4")
@pytest.mark.parametrize("inline", [False, True])
def test_a_lease_that_ends_while_the_function_runs_leaves_nothing_of_it(path, inline):
    now = [1_000_000_000]

    async def story():
        async with opened(path, clock=lambda: now[0], inline=inline) as store:
            holder = await hand(store)

            def late(connection):
                now[0] = holder.claim.lease_until + 1
                return up(connection)

            verdict = await holder.send(late)
            return verdict.answer, holder.called, await store.steps(holder.claim.id)

    assert asyncio.run(story()) == ("lost", 1, [])
    assert count(path) == 0


@pytest.mark.spec("FLOW-16", "LEASE-5")
def test_a_lease_that_ends_at_this_very_instant_still_holds(path):
    now = [1_000_000_000]

    async def story():
        async with opened(path, clock=lambda: now[0]) as store:
            holder = await hand(store)

            def at_the_end(connection):
                now[0] = holder.claim.lease_until
                return up(connection)

            return (await holder.send(at_the_end)).answer

    assert asyncio.run(story()) == "applied"
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "PAUSE-1")
def test_a_pause_that_is_asked_for_is_taken_with_the_functions_writes(path):
    async def story(store, hand):
        await store.pause(hand.claim.id, by="me")
        verdict = await hand.send(up)
        return verdict.answer, str((await store.get(hand.claim.id)).status)

    assert told(path, story) == ("paused", "paused")
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_key_that_is_settled_keeps_its_value_and_the_function_has_done_nothing(path):
    async def story(store, hand):
        await store.commit([hand.item(steps=(StepWrite(key="once", output="7"),))])
        verdict = await hand.send(up, key="once", steps=(StepWrite(key="beside"),))
        return verdict.kept, [step.key for step in await store.steps(hand.claim.id)]

    assert told(path, story) == ((("once", "7"),), ["once", "beside"])
    assert count(path) == 0


# What a function must not do.


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
    "goes on writing after its transaction was rolled back": swallows(
        "insert or rollback into named values ('a')"
    ),
    "goes on writing after": takes_off_its_guard,
    "closes its connection": closes,
    "leaves a statement unfinished": leaves_open,
}


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("said", WRONG)
def test_a_function_that_does_what_is_the_engines_is_found_out_and_nothing_of_it_stays(path, said):
    async def story(store, hand):
        with pytest.raises(UsageError) as refused:
            await hand.send(WRONG[said])
        assert "\n" not in str(refused.value)
        # The store is none the worse for it, and so is the number that was used up.
        return str(refused.value), (await hand.send(up)).answer, await store.steps(hand.claim.id)

    message, answer, steps = told(path, story)
    assert said.partition(",")[0] in message
    assert (answer, count(path), [step.key for step in steps]) == ("applied", 1, ["k2"])


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

    told(path, story)


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

    assert told(path, story) == "applied"
    assert count(path) == 1
    with plain(path) as connection:
        assert connection.execute("pragma user_version").fetchall() == [(3,)]


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

    assert told(path, story) == ["applied"] * 3


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

    assert told(path, story) == (True, "applied")
    assert count(path) == 1


@pytest.mark.spec("FLOW-16")
def test_a_full_disk_is_the_stores_trouble_and_not_the_functions(path):
    """Sent again with the same number it is done, once."""
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

    assert told(path, story) == "applied"
    assert count(path) == 1


# How long it may take.


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

    told(path, story)
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

    assert told(path, story) == "applied"
    assert count(path) == 1


# Whom it must not wait for.


def through_a_thread(coroutine):
    """As a blocking door does it: another thread has the loop, the caller's context goes along."""
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
            "get": lambda: store.get(hand.claim.id),
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

    assert told(path, story) == ("applied", 0)


@pytest.mark.spec("FLOW-16")
def test_another_store_may_be_called_from_inside(path, tmp_path):
    async def story(_store, hand):
        def function(connection):
            live(tmp_path / "other.db", lambda other: other.start([new_run()]))
            return up(connection)

        return (await hand.send(function)).answer

    assert told(path, story) == "applied"


# Its neighbours.


class Gate:
    """A job that keeps the writer busy until it is told to go on."""

    def __init__(self):
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, _db, _now):
        self.entered.set()
        assert self.go.wait(PATIENCE)


@pytest.mark.spec("FLOW-16", "LEASE-18")
@pytest.mark.parametrize("fails", [False, True])
def test_it_is_called_once_and_alone_whatever_its_neighbours_come_to(path, fails):
    """What was queued beside it goes first, in another commit, and neither is run again for the other."""

    async def story(store, hand):
        gate, order, ran = Gate(), [], []

        def function(connection):
            order.append("function")
            if fails:
                raise ValueError
            return up(connection)

        def bad(_db, _now):
            order.append("bad")
            raise ZeroDivisionError

        def good(_db, _now):
            order.append("good")
            ran.append(1)

        first = asyncio.ensure_future(store._write(gate))
        await until(gate.entered.is_set)
        queued = [
            asyncio.ensure_future(one)
            for one in (hand.send(function), store._write(good), store._write(bad), store.start([new_run()]))
        ]
        await asyncio.sleep(0)
        renewal = threading.Thread(
            target=lambda: (
                store.renew("w", [Lease(run=hand.claim.id, fence=1)], 30.0),
                order.append("renewal"),
            )
        )
        renewal.start()
        await until(lambda: store._writer._urgent)
        gate.go.set()
        sent, _, failed, started = await asyncio.gather(*queued, return_exceptions=True)
        await first
        await asyncio.to_thread(renewal.join)
        assert isinstance(failed, ZeroDivisionError)
        assert started[0].created
        return order, sent, hand.called

    order, sent, called = told(path, story)
    assert called == order.count("function") == 1
    assert order[-1] == "function" or order[-2:] == ["function", "renewal"]
    assert (type(sent) is ValueError, count(path)) == ((True, 0) if fails else (False, 1))


@pytest.mark.spec("FLOW-16")
def test_what_is_queued_when_the_store_closes_is_done_first(path):
    async def story():
        async with opened(path) as store:
            holder, gate = await hand(store), Gate()
            first = asyncio.ensure_future(store._write(gate))
            await until(gate.entered.is_set)
            sent = [asyncio.ensure_future(holder.send(up)) for _ in range(2)]
            await asyncio.sleep(0)
            threading.Timer(0.05, gate.go.set).start()
        return [one.answer for one in await asyncio.gather(*sent)], await first

    assert asyncio.run(story())[0] == ["applied", "applied"]
    assert count(path) == 2


@pytest.mark.spec("FLOW-16")
def test_only_a_checkpoint_can_be_a_transaction(path):
    async def story(store, hand):
        with pytest.raises(UsageError, match="a transaction is a checkpoint"):
            await store.transact(hand.item(move=Move.COMPLETE), up)
        item = hand.item()
        with pytest.raises(UsageError, match="records no step"):
            await store.transact(item, lambda connection: up(connection) and item)

    told(path, story)
    assert count(path) == 0


@pytest.mark.spec("FLOW-16")
def test_in_memory_it_works_on_the_one_connection_there_is():
    async def story():
        async with opened(":memory:") as store:
            holder = await hand(store)

            def function(connection):
                connection.execute("create table mine (x); insert into mine values (1)")

            def wrong(connection):
                connection.execute("insert into mine values (2); commit")

            await holder.send(function)
            with pytest.raises(UsageError, match="calls commit"):
                await holder.send(wrong)
            seen = []
            await holder.send(lambda connection: seen.extend(connection.execute("select x from mine")))
            return seen

    assert asyncio.run(story()) == [(1,)]
