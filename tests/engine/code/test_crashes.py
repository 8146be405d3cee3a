"""Crashes, zombies and lost replies: the outcome is the same, and no recorded step runs again."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import Backoff, Status, Unavailable
from holdfast.testing.faulty import (
    VERBS,
    Faulty,
    break_down,
    delay,
    delay_reply,
    die_after,
    die_before,
    fail_before,
    lose_reply,
)
from tests.engine.kit import keys, outcome, process, trail, until

LEASE = 6


class Ledger:
    """Counts the calls of each step, and notes calls of steps whose result was already recorded."""

    def __init__(self, app):
        self.app, self.calls, self.again = app, Counter(), []

    def workflow(self):
        """A workflow with every kind of call that a run can make, with a backoff and a gather."""

        @self.app.workflow("shop.order.v1", retry=Backoff.fixed(0.5, attempts=3))
        async def order(ctx):
            first = await ctx.step("charge", self.do, ctx, "charge")
            at = ctx.now()
            await ctx.sleep(2)
            ctx.emit("sent", first)
            mail, event, _ = await asyncio.gather(
                ctx.step("mail", self.do, ctx, "mail", 3),
                ctx.await_event("sent"),
                ctx.sleep(4, key="nap"),
            )
            flaky = await ctx.step("flaky", self.flaky, ctx, retry=Backoff.of([0.2, 3]))
            again = ctx.now()
            return [first, mail, event.payload, flaky, (again - at).total_seconds() >= 6]

        return order

    async def do(self, ctx, name, seconds=1):
        await self._note(ctx, name)
        await asyncio.sleep(seconds)
        return name

    async def flaky(self, ctx):
        await self._note(ctx, "flaky")
        if self.calls["flaky"] < 3:
            raise ValueError("not yet")
        return "flaky"

    async def _note(self, ctx, name):
        self.calls[name] += 1
        recorded = {step.key: step for step in await self.app.steps(ctx.run_id)}
        if name in recorded and recorded[name].status == "succeeded":
            self.again.append(name)


EXPECTED = ["charge", "mail", "charge", "flaky", True]


@pytest.mark.spec("LEASE-6", "FLOW-1")
@pytest.mark.parametrize("at", range(16))
async def test_a_worker_killed_at_any_second_is_replaced_and_no_recorded_step_runs_again(app, at):
    ledger = Ledger(app)
    run = await app.start(ledger.workflow())
    doomed = await process(app, 1, lease=LEASE)
    await asyncio.sleep(at + 0.5)
    doomed.kill()
    heir = await process(app, 2, lease=LEASE)
    assert await run.result(200) == EXPECTED
    assert ledger.again == []
    heir.kill()


@pytest.mark.spec("LEASE-6", "LEASE-14", "MOVE-2")
@pytest.mark.parametrize("fault", [die_before, die_after])
@pytest.mark.parametrize("number", range(1, 11))
async def test_a_worker_that_dies_at_any_commit_is_replaced(app, fault, number):
    ledger, store = Ledger(app), Faulty(app.store)
    run = await app.start(ledger.workflow())
    doomed = await process(app, 1, store, lease=LEASE)
    store.plan("commit", number, fault(doomed.world))
    heir = None
    for _ in range(60):
        await asyncio.sleep(1)
        if doomed.world.frozen and heir is None:
            heir = await process(app, 2, lease=LEASE)
        if (await app.get(run.id)).status is Status.SUCCEEDED:
            break
    assert await run.result(200) == EXPECTED
    assert ledger.again == []
    assert heir is not None, f"the run has fewer than {number} commits"
    heir.kill()


@pytest.mark.spec("LEASE-14", "LEASE-17")
@pytest.mark.parametrize(
    "fault", [fail_before, lose_reply, delay(1), delay_reply(1)], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("verb", ["commit", "claim", "renew", "tick", "due", "deliver", "present"])
async def test_a_fault_at_any_call_of_a_verb_only_takes_time(app, verb, fault):
    ledger, store = Ledger(app), Faulty(app.store)
    run = await app.start(ledger.workflow())
    worker = await process(app, 1, store, lease=LEASE)
    for number in range(1, 40, 2):
        store.plan(verb, number, fault)
    assert await run.result(300) == EXPECTED
    assert ledger.again == []
    assert ledger.calls["charge"] == 1
    worker.kill()


@pytest.mark.spec("LEASE-14")
async def test_a_commit_whose_reply_is_lost_is_sent_again(app):
    store = app.store = Faulty(app.store)
    called = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for name in "abc":
            await ctx.step(name, called.append, name)
        return "done"

    store.always("commit", None)
    for number in (1, 3, 5, 7):
        store.plan("commit", number, lose_reply)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
    assert called == ["a", "b", "c"]
    assert (await trail(app, run)).count("step_succeeded") == 3
    assert (await trail(app, run)).count("leased") == 1


async def test_runs_continue_after_a_long_outage_of_the_store(app):
    """No run fails for it. The run continues when the store is back, on the same worker or another."""
    store = app.store = Faulty(app.store)
    ledger = Ledger(app)
    order = ledger.workflow()
    async with app.worker(lease=LEASE):
        run = await app.start(order)
        await asyncio.sleep(1.5)
        for verb in VERBS:
            store.always(verb, fail_before)
        store.always("renew", fail_before)
        await asyncio.sleep(60)
        for verb in (*VERBS, "renew"):
            store.always(verb, None)
        assert await run.result(100) == EXPECTED
    assert ledger.again == []


@pytest.mark.spec("LEASE-4", "LEASE-7")
async def test_a_zombie_changes_nothing_and_stops(app):
    """The process stops for three leases and continues: its writes are refused, and its code is unwound."""
    events = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        me = len(events)
        events.append("begun")
        await ctx.step("a", lambda: 1)
        try:
            value = await ctx.step("slow", asyncio.sleep, 10, me)
        except asyncio.CancelledError:
            events.append(f"{me} unwound")
            raise
        return value

    run = await app.start(order)
    zombie = await process(app, 1, lease=LEASE)
    await asyncio.sleep(3)
    zombie.stop()
    heir = await process(app, 2, lease=LEASE)
    await asyncio.sleep(3 * LEASE)
    zombie.go_on()
    assert await run.result(100) == 1
    await asyncio.sleep(2 * LEASE)
    assert zombie.worker.busy == 0
    assert "0 unwound" in events
    assert (await trail(app, run)).count("succeeded") == 1
    assert (await trail(app, run)).count("step_succeeded") == 2
    heir.kill()


@pytest.mark.spec("LEASE-4")
async def test_a_zombie_whose_run_has_ended_stops_too(app):
    executed = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        executed.append(1)
        if len(executed) == 1:
            await asyncio.sleep(5)
            await ctx.step("late", lambda: executed.append("late"))
        return "by the heir"

    run = await app.start(order)
    zombie = await process(app, 1, lease=LEASE)
    await asyncio.sleep(1)
    zombie.stop()
    heir = await process(app, 2, lease=LEASE)
    assert await run.result(100) == "by the heir"
    zombie.go_on()
    await asyncio.sleep(20)
    assert zombie.worker.busy == 0
    assert await keys(app, run) == []
    assert (await app.get(run.id)).result == "by the heir"
    heir.kill()


@pytest.mark.spec("LEASE-6", "RETRY-7", "RETRY-8")
async def test_a_run_whose_workers_always_die_fails_at_the_crash_cap(app):
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        begun.append(1)
        await asyncio.sleep(10**6)

    run = await app.start(order)
    for seed in range(1, 5):
        doomed = await process(app, seed, lease=LEASE)
        while len(begun) < seed:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        doomed.kill()
    async with app.worker():
        assert await outcome(app, run, 60) == ("failed", "lease_expired")
    assert len(begun) == 4
    assert [entry.data["crashes"] for entry in await app.trail(run.id) if entry.type == "lease_expired"] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.spec("LEASE-6")
async def test_progress_resets_the_count_of_crashes(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(6):
            await ctx.step(f"s{n}", asyncio.sleep, 2)
        return "done"

    run = await app.start(order)
    for seed in range(1, 6):
        doomed = await process(app, seed, lease=LEASE)
        await until(app, run, Status.LEASED)
        await asyncio.sleep(3)
        doomed.kill()
        await asyncio.sleep(LEASE + 5)
        await app.store.tick()
    async with app.worker():
        assert await run.result(100) == "done"
    assert [entry.data["crashes"] for entry in await app.trail(run.id) if entry.type == "lease_expired"] == [
        1
    ] * 5


@pytest.mark.spec("STORE-7")
async def test_the_engine_runs_on_a_store_without_a_base_class(app):
    """The store has the verbs of the contract and no base class of the library."""
    store = Faulty(app.store)
    assert type(store).__mro__ == (Faulty, object)
    app.store, ledger = store, Ledger(app)
    order = ledger.workflow()
    async with app.worker():
        assert await (await app.start(order)).result(100) == EXPECTED


async def test_a_refused_item_does_not_fail_its_batch(app):
    store = app.store = Faulty(app.store)
    inner = store.inner.commit

    async def commit(batch):
        if any(item.run == bad.id for item in batch):
            raise ValueError("a bug in the store")
        return await inner(batch)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1)
        return "done"

    bad, *good = [await app.start(order) for _ in range(5)]
    store.inner.commit = commit
    async with app.worker(lease=LEASE):
        for run in good:
            assert await run.result(10) == "done"
        store.inner.commit = inner
        assert await bad.result(60) == "done"


@pytest.mark.parametrize("verb", ["claim", "renew", "tick", "due", "deliver", "present"])
async def test_a_bug_of_the_store_ends_no_loop_of_the_worker(app, verb):
    """A loop that died silently would leave a live worker that does nothing."""
    ledger, store = Ledger(app), Faulty(app.store)
    run = await app.start(ledger.workflow())

    @app.workflow("shop.other.v1")
    async def other(ctx):
        return "done"

    worker = await process(app, 1, store, lease=LEASE)
    store.plan(verb, 1, break_down)
    store.plan(verb, 3, break_down)
    assert await run.result(300) == EXPECTED
    await asyncio.sleep(60)
    calls = store.calls[verb]
    assert await (await app.start(other)).result(60) == "done"  # an idle worker neither claims nor renews
    await asyncio.sleep(60)
    assert store.calls[verb] > calls or verb in {"deliver", "tick"}  # only when there is something to do
    worker.kill()


async def test_a_client_of_an_unreachable_store_gets_unavailable(app):
    store = app.store = Faulty(app.store)
    store.always("start", fail_before)
    with pytest.raises(Unavailable):
        await app.start("shop.order.v1")
