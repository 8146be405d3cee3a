"""A worker that was suspended between two steps begins no step that another worker may have recorded."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import Task
from holdfast.engine.worker.lease_clock import LeaseClock
from holdfast.engine.worker.leases import Leases
from holdfast.records import Answer, Held, Renewal
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.faulty import Faulty, fail_before, lose_reply
from holdfast.world import RealWorld
from tests.engine.kit import outcome, process, trail
from tests.engine.plans.plan_helpers import TYPE

LEASE = 6.0


async def suspend_and_take_over(app, run, stopped):
    """Run two processes: the first stops where the code calls `stop`, the second ends the run."""
    first = await process(app, 1, lease=LEASE)
    stopped["world"] = first.world
    await asyncio.sleep(3)
    assert first.world.frozen
    second = await process(app, 2, lease=LEASE)
    found = await app.final(run.id, 100)
    first.go_on()
    await asyncio.sleep(2 * LEASE)
    assert first.worker.busy == 0
    second.kill()
    return found


async def stop(stopped):
    """Stop here, once, as SIGSTOP does: no code notices it."""
    if "world" in stopped and not stopped.get("done"):
        stopped["done"] = True
        stopped["world"].freeze()
    await asyncio.sleep(0)


@pytest.mark.spec("LEASE-9", "FLOW-1")
@pytest.mark.parametrize("kind", ["async", "in a thread", "a segment's", "a transaction"])
async def test_a_step_that_another_worker_has_recorded_does_not_begin(app, kind):
    begun, stopped = [], {}

    # The memory store has no transactions: there it is a step like any other.
    async def awaited():
        begun.append("b")

    mode = {"checkpoint": "segment"} if kind == "a segment's" else {}

    @app.workflow("shop.order.v1", **mode)
    async def order(ctx):
        await ctx.step("a", asyncio.sleep, 1)
        await stop(stopped)
        if kind == "a transaction" and isinstance(app.store, SqliteStore):
            await ctx.transaction(lambda _: begun.append("b"), name="b")
        elif kind == "in a thread":
            await ctx.step("b", lambda: begun.append("b"))
        else:
            await ctx.step("b", awaited)
        return "done"

    run = await app.start(order)
    found = await suspend_and_take_over(app, run, stopped)
    assert (found.result, begun) == ("done", ["b"])
    assert (await trail(app, run)).count("leased") == 2


@pytest.mark.spec("LEASE-9", "PLAN-1")
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_task_of_a_plan_that_another_worker_has_recorded_does_not_begin(app, threaded):
    begun = []
    plan = app.plan(TYPE, [Task("a"), Task("b")])

    @plan.task("a")
    async def a(task):
        await asyncio.sleep(1)
        return 1

    if threaded:
        plan.task("b")(lambda _: begun.append("b"))
    else:

        @plan.task("b")
        async def b(task):
            begun.append("b")

    await app.publish()
    run = await app.start(plan)
    first = await process(app, 1, lease=LEASE)
    answered = first.worker.committer._answer

    def freezes(*args):
        first.worker.committer._answer = answered
        answered(*args)
        first.world.freeze()

    first.worker.committer._answer = freezes
    await asyncio.sleep(3)
    assert first.world.frozen
    second = await process(app, 2, lease=LEASE)
    await app.final(run.id, 100)
    first.go_on()
    await asyncio.sleep(2 * LEASE)
    assert begun == ["b"]
    assert first.worker.busy == 0
    second.kill()


@pytest.mark.spec("LEASE-8")
async def test_a_worker_whose_renewals_fail_continues_while_its_commits_succeed(app):
    """A commit renews a short lease, and the worker counts the lease from it too."""
    store = app.store = Faulty(app.store)
    store.always("renew", fail_before)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(10):
            await ctx.step(f"s{n}", asyncio.sleep, 2)

    run = await app.start(order)
    async with app.worker(lease=LEASE):
        assert await outcome(app, run, 60) == ("succeeded", None)
    assert (await trail(app, run)).count("leased") == 1


@pytest.mark.spec("LEASE-9")
async def test_a_worker_without_an_answer_begins_no_step_until_the_store_answers(app, world):
    """The lease may have ended and the store does not answer: no step may begin then."""
    store = app.store = Faulty(app.store)
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        if not begun:
            store.always("renew", fail_before)
            await asyncio.sleep(4 * LEASE)
        await ctx.step("b", lambda: begun.append(world.monotonic()))

    run = await app.start(order)
    async with app.worker(lease=LEASE, keeper=False):
        await asyncio.sleep(10 * LEASE)
        assert begun == []
        store.always("renew", None)
        await asyncio.sleep(2 * LEASE)
    assert begun == []  # the lease had ended: the worker learns that it has lost the run
    assert (await app.get(run.id)).fence == 1


class LockedRows(Faulty):
    """While `kept`, every row is locked by another transaction: a renewal is answered and writes nothing."""

    kept = False

    def renew(self, worker, leases, lease_seconds):
        if self.kept:
            return Renewal(held=tuple(Held(answer=Answer.APPLIED) for _ in leases))
        return super().renew(worker, leases, lease_seconds)


@pytest.mark.spec("LEASE-8", "LEASE-9")
async def test_a_renewal_that_wrote_nothing_does_not_extend_the_lease(app):
    """The run is still held, but not for longer: a step after the end of the lease waits."""
    store = app.store = LockedRows(app.store)
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", asyncio.sleep, 0)
        store.kept = True
        await asyncio.sleep(2 * LEASE)
        await ctx.step("b", lambda: begun.append("b"))

    run = await app.start(order)
    async with app.worker(lease=LEASE, keeper=False):
        await asyncio.sleep(5 * LEASE)
        assert begun == []
        store.kept = False
        await asyncio.sleep(LEASE)
    assert begun == []
    assert (await app.get(run.id)).fence == 1


@pytest.mark.spec("LEASE-6")
async def test_a_renewal_that_wrote_nothing_does_not_forgive_crashes(app):
    store = app.store = LockedRows(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", asyncio.sleep, 4 * LEASE)

    run = await app.start(order)
    first = await process(app, 1, lease=LEASE)
    await asyncio.sleep(1)
    first.kill()
    async with app.worker(lease=LEASE) as worker:
        await asyncio.sleep(1.5 * LEASE)
        clock = worker.leases.held[run.id].lease_clock
        assert clock.age < 1
        store.kept = True
        await asyncio.sleep(0.9 * LEASE)
        assert clock.age > 1
        assert not clock.forgiven
        store.kept = False
        await worker.leases.refresh()
        assert clock.forgiven == ((await app.get(run.id)).crashes == 0)


@pytest.mark.spec("FLOW-23")
@pytest.mark.parametrize("trouble", ["passed over", "out of reach"])
async def test_progress_that_a_renewal_could_not_write_goes_with_the_next_renewal(app, trouble):
    store = app.store = LockedRows(app.store)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.progress(1)
        await ctx.step("a", asyncio.sleep, 3 * LEASE)

    store.kept = trouble == "passed over"
    store.always("renew", fail_before if trouble == "out of reach" else None)
    run = await app.start(order)
    async with app.worker(lease=LEASE) as worker:
        await asyncio.sleep(0.5 * LEASE)
        assert (await app.get(run.id)).progress is None
        store.kept = False
        store.always("renew", None)
        await worker.leases.refresh()
        assert (await app.get(run.id)).progress["done"] == 1


@pytest.mark.spec("LEASE-9", "LEASE-4")
async def test_a_worker_that_claims_its_own_run_again_ends_the_older_execution(app):
    """No renewal names the older execution any more, so no answer would ever reach it."""
    store = app.store = Faulty(app.store)
    executions, begun = [], []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        mine = len(executions)
        executions.append(mine)
        await ctx.step("a", asyncio.sleep, 0)
        if mine == 0:
            store.always("renew", fail_before)
        await asyncio.sleep(3 * LEASE if mine == 0 else LEASE)
        await ctx.step("b", lambda: begun.append(mine))

    run = await app.start(order)
    async with app.worker(lease=LEASE) as worker:
        await asyncio.sleep(2 * LEASE)
        assert executions == [0, 1]
        store.always("renew", None)
        assert await outcome(app, run, 60) == ("succeeded", None)
        await asyncio.sleep(4 * LEASE)
        assert (begun, worker.busy, len(worker._executions)) == ([1], 0, 0)


@pytest.mark.spec("LEASE-8")
async def test_a_caller_waiting_for_a_renewal_is_answered_when_renewals_end(app, world):
    """Between the last heartbeat and the end of heartbeats: nothing may wait forever."""

    class Still:
        def ask(self):
            """Send no heartbeat."""

        async def stop(self):
            await asyncio.sleep(1)

    async with app.worker() as worker:
        leases = Leases("w", app.store, world, worker.committer, LEASE)
        leases._pulse = Still()
        asked = asyncio.create_task(leases.refresh())
        await asyncio.sleep(0)
        assert await leases.end(LEASE)
        await asyncio.wait_for(asked, 1)


@pytest.mark.spec("LEASE-9", "RETRY-9")
@pytest.mark.parametrize("kind", ["async", "a transaction"])
async def test_a_step_that_waited_for_its_lease_does_not_begin_after_the_timeout(app, kind):
    """The replies of renewals are lost: the lease holds, and the worker cannot know it."""
    store = app.store = Faulty(app.store)
    begun = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", asyncio.sleep, 0)
        store.always("renew", lose_reply)
        await asyncio.sleep(2 * LEASE)
        if kind == "a transaction" and isinstance(store.inner, SqliteStore):
            await ctx.transaction(lambda _: begun.append("b"), name="b")
        else:
            await ctx.step("b", lambda: begun.append("b"))

    run = await app.start(order, timeout=3 * LEASE)
    async with app.worker(lease=LEASE, keeper=False):
        await asyncio.sleep(4 * LEASE)
        store.always("renew", None)
        assert await outcome(app, run, 60) == ("failed", "timeout")
    assert begun == []


@pytest.mark.spec("LEASE-9")
def test_a_lease_ends_while_the_machine_is_suspended(monkeypatch):
    """On Linux time.monotonic() stands still then, and the clock of the store continues."""
    suspended = 0.0

    def boot_time(clock):
        assert clock == getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return 100.0 + suspended

    monkeypatch.setattr(time, "clock_gettime", boot_time)
    world = RealWorld()
    lease = LeaseClock(world, world.monotonic(), 30.0)
    assert not lease.over
    suspended = 3600.0
    assert lease.over


def test_a_lease_is_counted_from_before_the_call_that_granted_it(world):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    lease = LeaseClock(clock, 90.0, 30.0)
    clock.now = 119.9
    assert not lease.over
    clock.now = 120.0
    assert lease.over
    lease.renewed(110.0)
    clock.now = 139.9
    assert not lease.over
    lease.committed(125.0)  # two thirds of the lease are left after a commit
    clock.now = 144.9
    assert not lease.over
    lease.renewed(100.0)  # an older answer takes nothing back
    assert not lease.over
    clock.now = 145.0
    assert lease.over
