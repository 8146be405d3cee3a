"""transact: a checkpoint and the writes of a user's function are one commit, whatever happens."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.records import ANY, Lease, NewEvent, StepWrite, TrailWrite
from holdfast.records.moves import Complete
from tests.stores.sqlite.files import new_run, opened, until
from tests.stores.sqlite.transactions.holder import count, new_holder, up, with_counter, with_holder

PATIENCE = 10.0


@pytest.fixture
def path(tmp_path):
    return with_counter(tmp_path / "holdfast.db")


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

        before = store._transactor.commits
        verdict = await store.transact(item, work)
        run = await store.get(hand.claim.id, ANY)
        steps, trail = await store.steps(run.id, ANY), await store.trail(run.id, ANY)
        return (
            verdict.answer,
            store._transactor.commits - before,
            run.cost,
            steps,
            trail,
            await store.deliver(),
        )

    answer, commits, cost, steps, trail, _ = with_holder(path, story)
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
        await store.commit([hand.item(move=Complete(result="1"))])
        ended = await store.transact(item, work)
        return first == again == ended, later[0].answer, hand.called

    assert with_holder(path, story) == (True, "applied", 1)
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "LEASE-4", "CANC-2")
def test_a_worker_without_the_lease_is_refused_before_its_function_is_called(path):
    async def story(store, hand):
        await store.cancel(hand.claim.id, ANY)
        cancelled = await hand.send(up)
        return cancelled.answer, hand.called

    assert with_holder(path, story) == ("cancelled", 0)
    assert count(path) == 0


@pytest.mark.spec("FLOW-16", "LEASE-4")
@pytest.mark.parametrize("inline", [False, True])
def test_a_lease_that_ends_while_the_function_runs_leaves_nothing_of_it(path, inline):
    now = [1_000_000_000]

    async def story():
        async with opened(path, clock=lambda: now[0], inline=inline) as store:
            holder = await new_holder(store)

            def late(connection):
                now[0] = holder.claim.lease_until + 1
                return up(connection)

            verdict = await holder.send(late)
            return verdict.answer, holder.called, await store.steps(holder.claim.id, ANY)

    assert asyncio.run(story()) == ("lost", 1, [])
    assert count(path) == 0


@pytest.mark.spec("FLOW-16", "LEASE-5")
def test_a_lease_that_ends_at_this_very_instant_still_holds(path):
    now = [1_000_000_000]

    async def story():
        async with opened(path, clock=lambda: now[0]) as store:
            holder = await new_holder(store)

            def at_the_end(connection):
                now[0] = holder.claim.lease_until
                return up(connection)

            return (await holder.send(at_the_end)).answer

    assert asyncio.run(story()) == "applied"
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "PAUSE-1")
def test_a_pause_that_is_asked_for_is_taken_with_the_functions_writes(path):
    async def story(store, hand):
        await store.pause(hand.claim.id, ANY, by="me")
        verdict = await hand.send(up)
        return verdict.answer, str((await store.get(hand.claim.id, ANY)).status)

    assert with_holder(path, story) == ("paused", "paused")
    assert count(path) == 1


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_key_that_is_settled_keeps_its_value_and_the_function_has_done_nothing(path):
    async def story(store, hand):
        await store.commit([hand.item(steps=(StepWrite(key="once", output="7"),))])
        verdict = await hand.send(up, key="once", steps=(StepWrite(key="beside"),))
        return verdict.kept, [step.key for step in await store.steps(hand.claim.id, ANY)]

    assert with_holder(path, story) == ((("once", "7"),), ["once", "beside"])
    assert count(path) == 0


# Other jobs of the writer.


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
    """Jobs that were queued with it go first, in another commit, and neither makes the other run again."""

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
                store.renew("w", [Lease(run=hand.claim.id, fence=hand.claim.fence)], 30.0),
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

    order, sent, called = with_holder(path, story)
    assert called == order.count("function") == 1
    assert order[-1] == "function" or order[-2:] == ["function", "renewal"]
    assert (type(sent) is ValueError, count(path)) == ((True, 0) if fails else (False, 1))


@pytest.mark.spec("FLOW-16")
def test_what_is_queued_when_the_store_closes_is_done_first(path):
    async def story():
        async with opened(path) as store:
            holder, gate = await new_holder(store), Gate()
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
            await store.transact(hand.item(move=Complete(result="1")), up)
        item = hand.item()
        with pytest.raises(UsageError, match="records no step"):
            await store.transact(item, lambda connection: up(connection) and item)

    with_holder(path, story)
    assert count(path) == 0


@pytest.mark.spec("FLOW-16")
def test_in_memory_it_works_on_the_one_connection_there_is():
    async def story():
        async with opened(":memory:") as store:
            holder = await new_holder(store)

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
