"""Child runs that are started without waiting, given up, cancelled, forgotten or continued as others."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast import RunFilter, Status
from holdfast.records import NewRun
from holdfast.testing.faulty import Faulty, fail_before
from tests.engine.children.test_children import Parcel, children, shipping
from tests.engine.kit import outcome, trail, until


@pytest.mark.spec("FLOW-7")
@pytest.mark.parametrize("checkpoint", ["step", "segment"])
async def test_a_start_does_not_wait_and_returns_the_same_id_in_every_execution(app, checkpoint):
    ship = shipping(app)
    ids = []

    @app.workflow("shop.order.v1", checkpoint=checkpoint)
    async def order(ctx):
        ids.append(await ctx.start(ship, Parcel(100), delay=5))
        await ctx.sleep(1)
        return "done"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
        (child,) = await children(app, run)
        assert child.status is not Status.SUCCEEDED
        assert ids == [child.id, child.id]
        assert (await app.final(child.id, 200)).result == {"id": 100, "weight": 2.0}
    (step, _) = await app.steps(run.id)
    assert (step.key, str(step.kind), str(step.status), step.child) == (
        "shop.ship",
        "child",
        "succeeded",
        child.id,
    )


@pytest.mark.spec("FLOW-12")
async def test_children_started_in_a_segment_are_created_in_its_one_commit(app):
    """Before the commit the children do not exist: a crash before the commit leaves none of them."""
    ship = shipping(app)
    seen = []

    @app.workflow("shop.order.v1", checkpoint="segment")
    async def order(ctx):
        for n in range(3):
            await ctx.start(ship, Parcel(n), key=f"s:{n}")

        async def look():
            seen.append(len(await app.list(RunFilter(type="shop.ship.v1"))))

        await ctx.step("look", look)
        return "done"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "done"
    assert seen == [0]
    assert len(await children(app, run)) == 3


@pytest.mark.parametrize("turned", ["call", "start"])
async def test_a_start_that_becomes_a_call_is_drift(app, turned):
    ship = shipping(app)
    changed = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        verb = turned if not changed else ({"call", "start"} - {turned}).pop()
        await getattr(ctx, verb)(ship, Parcel(1))
        changed.append(1)
        await ctx.sleep(5)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "drift")
    assert "shop.ship" in (await run.get()).error.message


@pytest.mark.spec("FLOW-7")
async def test_a_child_whose_wait_was_given_up_continues(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        call = asyncio.ensure_future(ctx.call(ship, Parcel(50)))
        nap = asyncio.ensure_future(ctx.sleep(5))
        await asyncio.wait([call, nap], return_when=asyncio.FIRST_COMPLETED)
        call.cancel()
        await ctx.step("note", lambda: None)
        return "enough"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "enough"
        (child,) = await children(app, run)
        assert child.status is Status.WAITING
        assert (await app.final(child.id, 100)).status is Status.SUCCEEDED
    assert {step.key: str(step.status) for step in await app.steps(run.id)}["shop.ship"] == "cancelled"


async def test_a_later_attempt_can_wait_again_for_a_child_that_was_given_up(app):
    """The attempt that gave the wait up has failed.

    The next attempt waits and finds that the child has ended.
    """
    ship = shipping(app)
    attempts = []

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(30, attempts=3))
    async def order(ctx):
        attempts.append(1)
        call = asyncio.ensure_future(ctx.call(ship, Parcel(10)))
        nap = asyncio.ensure_future(ctx.sleep(5))
        await asyncio.wait([call, nap], return_when=asyncio.FIRST_COMPLETED)
        if len(attempts) == 2:
            call.cancel()
            raise ValueError("try again")
        return (await call).id

    async with app.worker():
        run = await app.start(order)
        assert await run.result(600) == 10
    assert len(await children(app, run)) == 1


@pytest.mark.spec("FLOW-21", "FLOW-7")
async def test_a_parent_of_a_chain_waits_for_the_last_run_of_the_chain(app):
    @app.workflow("shop.count.v1")
    async def count(ctx, n: int) -> str:
        await ctx.sleep(2)
        if n:
            ctx.continue_as(n - 1)
        return "counted"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.call(count, 3)

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "counted"
    chain = await children(app, run)
    assert [one.parent_step for one in chain] == ["shop.count"] * 4
    (step,) = await app.steps(run.id)
    assert step.child == chain[-1].id


async def test_children_and_continued_runs_have_the_trace_of_their_run(app, monkeypatch):
    """One trace from the start on, through calls, starts and continued runs."""
    traces, claim = {}, app.store.claim

    async def recording_claim(ask):
        claims = await claim(ask)
        traces.update((one.id, (one.type, one.trace)) for one in claims)
        return claims

    monkeypatch.setattr(app.store, "claim", recording_claim)
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx, n: int):
        await ctx.call(ship, Parcel(1))
        await ctx.start(ship, Parcel(2))
        if n:
            ctx.continue_as(n - 1)

    async with app.worker():
        traced = NewRun(id=app.world.uuid7(), type="shop.order.v1", params="1", trace="00-traced")
        await app.store.start([traced])
        untraced = await app.start(order, 0)
        await app.final(traced.id, 60)
        await untraced.result(60)
        await asyncio.sleep(60)
    found_traces = sorted(traces.values())
    assert found_traces == sorted(
        [("shop.order.v1", "00-traced")] * 2 + [("shop.ship.v1", "00-traced")] * 4
        + [("shop.order.v1", "")] + [("shop.ship.v1", "")] * 2
    )  # fmt: skip


@pytest.mark.spec("CANC-5")
@pytest.mark.parametrize("kept", [False, True])
async def test_cancelling_a_parent_cancels_its_children_unless_an_option_keeps_them(app, kept):
    """Children of children are cancelled as well, and children that were only started."""
    ship = shipping(app)

    @app.workflow("shop.pack.v1")
    async def pack(ctx):
        await ctx.call(ship, Parcel(50))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.start(ship, Parcel(60))
        await ctx.call(pack)

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        await app.cancel(run.id, by="ada", children=not kept)
        await asyncio.sleep(1)
        found = {one.type: one.status for one in await app.list()}
        assert found.pop("shop.order.v1") is Status.CANCELLED
        assert set(found.values()) == ({Status.WAITING} if kept else {Status.CANCELLED})


@pytest.mark.spec("REW-3")
@pytest.mark.parametrize("kept", [False, True])
async def test_rewinding_cancels_a_child_unless_an_option_keeps_it_and_starts_another(app, kept):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", lambda: ctx.cost(2.5))
        await ctx.start(ship, Parcel(70))
        return (await ctx.call(ship, Parcel(50))).id

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await asyncio.sleep(1)
        await app.rewind(run.id, "shop.ship", children=not kept)
        assert await run.result(200) == 50
        assert (await run.get()).cost == 2.5
        await asyncio.sleep(100)
    found = await children(app, run)
    assert len(found) == 4
    assert [str(one.status) for one in found[:2]] == ["succeeded" if kept else "cancelled"] * 2
    assert [str(one.status) for one in found[2:]] == ["succeeded"] * 2


@pytest.mark.spec("PAUSE-4")
async def test_a_child_that_ends_while_its_parent_is_paused_is_found_at_resume(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.call(ship, Parcel(3))).id

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.pause(run.id)
        await asyncio.sleep(10)
        (child,) = await children(app, run)
        assert child.status is Status.SUCCEEDED
        assert (await run.get()).status is Status.PAUSED
        await app.resume(run.id)
        assert await run.result(60) == 3


@pytest.mark.spec("MOVE-2")
async def test_the_worker_that_ends_a_child_notifies_the_parent_or_a_keeper_does(app):
    """Without a keeper the worker notifies at once.

    If the worker died before, a keeper notifies the parent.
    """
    ship = shipping(app)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.call(ship, Parcel(0))).id

    async with app.worker(keeper=False):
        run = await app.start(order)
        assert await run.result(1) == 0

    store = app.store = Faulty(app.store)
    store.always("deliver", fail_before)
    async with app.worker(keeper=False):
        run = await app.start(order)
        await asyncio.sleep(100)
        assert (await run.get()).status is Status.WAITING
    store.always("deliver", None)
    async with app.worker():
        assert await run.result(10) == 0


async def test_a_start_causes_no_further_execution(app):
    """The code that wrote the row need not read it. The run parks, in a segment with the same commit."""
    store = app.store = Faulty(app.store)
    ship = shipping(app)
    executed = []

    def started(checkpoint):
        @app.workflow(f"shop.{checkpoint}.v1", checkpoint=checkpoint)
        async def order(ctx):
            executed.append(checkpoint)
            await ctx.start(ship, Parcel(0), delay=1000)
            await ctx.sleep(5)

        return order

    workflows = [started("step"), started("segment")]
    async with app.worker():
        for workflow in workflows:
            await (await app.start(workflow)).result(60)
    assert sorted(executed) == ["segment"] * 2 + ["step"] * 2
    assert store.calls["commit"] == 3 + 2


async def test_a_child_given_up_by_the_calling_execution_is_started_once(app):
    ship = shipping(app)

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(5, attempts=3))
    async def order(ctx):
        call = asyncio.ensure_future(ctx.call(ship, Parcel(50)))
        await ctx.step("slow", asyncio.sleep, 5)
        call.cancel()
        if ctx.attempt == 1:
            raise ValueError("once more")
        return "enough"

    async with app.worker():
        run = await app.start(order)
        assert await run.result(600) == "enough"
        assert len(await children(app, run)) == 1
    assert (await trail(app, run)).count("child_started") == 1


@pytest.mark.spec("FLOW-2")
async def test_a_start_waits_until_all_recorded_answers_have_been_replayed(app):
    """A live call comes after all recorded answers, whichever branch asks first."""
    ship = shipping(app)
    executions = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        order_of_events = []
        executions.append(order_of_events)

        async def starts():
            if len(executions) > 1:
                await ctx.start(ship, Parcel(0))
                order_of_events.append("started")

        async def sleeps():
            await ctx.sleep(5)
            order_of_events.append("slept")

        await asyncio.gather(starts(), sleeps())

    async with app.worker():
        await (await app.start(order)).result(60)
    assert executions == [[], ["slept", "started"]]
