"""Messages and events of a run: each belongs to a step, with a stable name."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import OutboxFilter, Status
from tests.engine.kit import keys, until


@pytest.mark.spec("FLOW-18")
async def test_concurrent_tasks_need_names_to_send_and_emit(app):
    """A counted name would depend on timing, so it is refused. Following the advice of the error works."""

    @app.workflow("shop.order.v1")
    async def order(ctx, named):
        async def branch(n):
            await ctx.step("work", asyncio.sleep, 0, key=f"work:{n}")
            ctx.send("mail", n, name=f"send:mail:{n}" if named else None)
            ctx.emit("told", n, name=f"emit:told:{n}" if named else None)

        await asyncio.gather(branch(1), branch(2))

    async with app.worker():
        refused = await until(app, await app.start(order, False), Status.FAILED)
        assert "as in name=f'send:mail:{n}', or send it inside a step" in refused.error.message
        run = await app.start(order, True)
        await run.result(100)
    assert sorted(one.payload for one in await app.outbox(OutboxFilter(run=run.id))) == [1, 2]
    names = {f"{what}:{n}" for what in ("work", "send:mail", "emit:told") for n in (1, 2)}
    assert set(await keys(app, run)) == names


@pytest.mark.spec("FLOW-18")
async def test_a_message_beyond_the_limit_of_steps_is_not_sent(app):
    """A message is sent with the step that records it, or not at all."""

    @app.workflow("shop.many.v1", steps_max=10)
    async def many(ctx):
        for number in range(20):
            ctx.send("mail", number)

    async with app.worker():
        run = await app.start(many)
        assert (await until(app, run, Status.FAILED)).error.kind == "history"
    assert len(await keys(app, run)) == 10
    assert [one.payload for one in await app.outbox()] == list(range(10))
