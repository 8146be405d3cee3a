"""Branches that fail or back off beside others that work or wait."""

from __future__ import annotations

import asyncio
import random

import pytest

from holdfast import Backoff, Status, StepFailed
from tests.engine.kit import until


@pytest.mark.spec("FLOW-9", "FLOW-19")
async def test_a_backoff_beside_an_event_keeps_both(app):
    tries = []

    def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "at last"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        event, value = await asyncio.gather(
            ctx.await_event("parcel"), ctx.step("flaky", flaky, retry=Backoff.fixed(10, attempts=3))
        )
        return [event.payload, value]

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(5)
        assert (await app.get(run.id)).status is Status.PENDING
        await app.emit("parcel", "early")
        assert await run.result(60) == ["early", "at last"]
    assert len(tries) == 3


@pytest.mark.spec("FLOW-9")
async def test_a_backoff_lets_its_siblings_steps_finish_first(app):
    tries, slow = [], []

    def flaky():
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")

    async def nap():
        slow.append(1)
        await asyncio.sleep(5)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(ctx.step("flaky", flaky, retry=Backoff.fixed(60)), ctx.step("nap", nap))

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.LEASED)
        found = await until(app, run, Status.PENDING, within=20)
        assert {step.key: str(step.status) for step in await app.steps(run.id)} == {
            "nap": "succeeded",
            "flaky": "ready",
        }
        assert 50 < (found.run_at - found.created_at).total_seconds() < 67
        await run.result(120)
    assert (len(tries), len(slow)) == (2, 1)


@pytest.mark.spec("FLOW-19")
async def test_a_failed_step_caught_in_one_branch_leaves_the_other_alone(app):
    def broken():
        raise ValueError("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def careful():
            try:
                await ctx.step("bad", broken, retry=Backoff.none())
            except StepFailed as error:
                return error.kind

        return await asyncio.gather(careful(), ctx.step("good", lambda: 1))

    async with app.worker():
        assert await (await app.start(order)).result(20) == ["exhausted", 1]


@pytest.mark.spec("FLOW-9")
async def test_a_failing_branch_of_a_task_group_cancels_its_siblings_and_fails_the_run(app):
    def broken():
        raise ValueError("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.await_event("never"))
            group.create_task(ctx.step("long", asyncio.sleep, 50))
            group.create_task(ctx.step("bad", broken, retry=Backoff.none()))

    async with app.worker():
        run = await app.start(order)
        assert (await app.final(run.id, 40)).status is Status.FAILED


@pytest.mark.spec("FLOW-9", "FLOW-2")
async def test_a_wait_and_a_step_that_end_together_keep_their_order_in_every_execution(app):
    """A wait that is settled by the commit that records a step comes after the step, live and in replay."""
    orders, crashed = [], []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        seen = []

        async def note(name, awaitable):
            await awaitable
            seen.append(name)

        async def late():
            await ctx.step("s", asyncio.sleep, 3)
            seen.append("step")
            await ctx.sleep(0, key="b")
            seen.append("b")

        await asyncio.gather(note("a", ctx.sleep(3, key="a")), late())
        orders.append(seen)
        await ctx.step("end", lambda: 1)
        if not crashed:
            crashed.append(1)
            raise ValueError("again")

    async with app.worker(keeper=False):
        await (await app.start(order)).result(60)
    assert len(orders) == 2
    assert orders[0] == orders[1]


@pytest.mark.spec("FLOW-9")
@pytest.mark.parametrize("seed", range(12))
async def test_random_races_of_steps_sleeps_and_events_replay_in_the_order_of_the_first_execution(app, seed):
    """A second execution sees the same order, whatever the timing was."""
    chance, orders = random.Random(seed), []
    plan = [(chance.choice(["step", "sleep", "event"]), chance.choice([0, 1, 1, 2, 3, 5])) for _ in range(6)]

    @app.workflow("shop.order.v1")
    async def order(ctx):
        seen = []

        async def branch(n):
            kind, seconds = plan[n]
            for turn in range(2):
                key = f"{kind}{n}.{turn}"
                if kind == "step":
                    await ctx.step("s", asyncio.sleep, seconds, key=key)
                elif kind == "sleep":
                    await ctx.sleep(seconds, key=key)
                else:
                    await ctx.await_event(f"go.{n}", key=key)
                seen.append(key)

        await asyncio.gather(*[branch(n) for n in range(len(plan))])
        orders.append(list(seen))
        await ctx.sleep(1, key="between")
        return "done"

    async with app.worker():
        run = await app.start(order)
        for tick in range(20):
            for n, (kind, seconds) in enumerate(plan):
                if kind == "event" and tick in (2 * seconds, 2 * seconds + 3):
                    await app.emit(f"go.{n}")
            await asyncio.sleep(0.5)
        assert await run.result(100) == "done"
    assert len(orders) >= 2
    assert all(one == orders[0] for one in orders), orders
