"""Branches that fail or back off beside others that work or wait."""

from __future__ import annotations

import asyncio

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
