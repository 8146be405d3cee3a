"""What a run sends or emits is a step of its own, or part of one: under which name, and never without it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import OutboxFilter, Status
from tests.engine.kit import keys, until


@pytest.mark.spec("FLOW-18")
async def test_tasks_of_a_run_send_and_emit_under_names_of_their_own(app):
    """Counted, the number would depend on timing: that is refused, and the advice can be followed."""

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
async def test_what_is_sent_as_one_too_many_is_not_sent(app):
    """With the step that records it, or not at all."""

    @app.workflow("shop.many.v1", steps_max=10)
    async def many(ctx):
        for number in range(20):
            ctx.send("mail", number)

    async with app.worker():
        run = await app.start(many)
        assert (await until(app, run, Status.FAILED)).error.kind == "history"
    assert len(await keys(app, run)) == 10
    assert [one.payload for one in await app.outbox()] == list(range(10))
