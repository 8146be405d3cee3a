"""Several branches of one run (gather, wait, TaskGroup): the same winner in every execution, and no hang."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, Fatal, Status
from tests.engine.kit import keys, outcome, trail, until


@pytest.mark.spec("FLOW-9")
async def test_a_gather_of_waits_parks_once_and_lists_them_all(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        event, *_ = await asyncio.gather(
            ctx.await_event("parcel"), ctx.sleep(60), ctx.sleep(30, key="short"), ctx.step("a", lambda: 1)
        )
        return event.payload

    async with app.worker():
        run = await app.start(order)
        parked = await until(app, run, Status.WAITING)
        assert [step.key for step in parked.waiting_on] == ["short", "sleep", "event:parcel"]
        assert (await trail(app, run)).count("leased") == 1
        assert await app.store.waiting_on("parcel", "default") == [run.id]
        await asyncio.sleep(31)
        parked = await until(app, run, Status.WAITING)
        assert [step.key for step in parked.waiting_on] == ["sleep", "event:parcel"]
        await app.emit("parcel", "here")
        assert await run.result(60) == "here"
    assert (await trail(app, run)).count("step_succeeded") == 1


@pytest.mark.spec("FLOW-9")
async def test_the_end_of_a_run_removes_its_open_waits(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        waits = [asyncio.ensure_future(ctx.sleep(5)), asyncio.ensure_future(ctx.await_event("never"))]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        raise Fatal("enough")

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "fatal")
        assert (await app.get(run.id)).waiting_on == ()
        assert await app.store.waiting_on("never", "default") == []
        assert (await app.emit("never")).woken == 0
    assert {step.key: str(step.status) for step in await app.steps(run.id)} == {
        "sleep": "succeeded",
        "event:never": "cancelled",
    }


@pytest.mark.spec("FLOW-9")
async def test_a_run_parks_only_after_running_steps_of_other_branches_are_committed(app):
    called = []

    async def slow():
        called.append(1)
        await asyncio.sleep(20)
        return "slow"

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await asyncio.gather(ctx.sleep(60), ctx.step("slow", slow))

    async with app.worker(grace=0):
        run = await app.start(order)
        parked = await until(app, run, Status.WAITING)
        assert await keys(app, run) == ["sleep", "slow"]
        assert 59 < (parked.waiting_on[0].due_at - run_begun(parked)) / 1e6 < 61
        assert await run.result(120) == [None, "slow"]
    assert called == [1]


def run_begun(run):
    return round(run.started_at.timestamp() * 1e6)


@pytest.mark.spec("FLOW-9")
async def test_waits_beside_a_running_step_are_all_open_at_once(app):
    """The time of a wait counts from its call, not from the end of the step."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await asyncio.gather(
            ctx.step("long", asyncio.sleep, 100),
            ctx.sleep(10),
            ctx.sleep(20, key="b"),
            ctx.await_event("parcel"),
        )

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(1)
        shown = await app.get(run.id)
        assert shown.status is Status.LEASED
        assert [step.key for step in shown.waiting_on] == ["sleep", "b", "event:parcel"]
        assert await app.store.waiting_on("parcel", "default") == [run.id]


@pytest.mark.spec("FLOW-9")
async def test_a_branch_learns_the_end_of_its_wait_while_a_step_still_runs(app, world):
    learnt = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch():
            await ctx.await_event("parcel")
            learnt.append(world.monotonic())
            await ctx.step("after", lambda: 1)

        await asyncio.gather(ctx.step("long", asyncio.sleep, 100), branch())

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(30)
        await app.emit("parcel")
        await run.result(200)
    assert 30 <= learnt[0] < 31
    assert (await keys(app, run))[-2:] == ["after", "long"]


@pytest.mark.spec("FLOW-2", "FLOW-9")
@pytest.mark.parametrize("first", ["sleep", "event"])
async def test_wait_first_completed_picks_the_same_winner_in_every_execution(app, first):
    winners = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        names = {
            asyncio.ensure_future(ctx.sleep(10)): "sleep",
            asyncio.ensure_future(ctx.await_event("go")): "event",
        }
        done, _ = await asyncio.wait(names, return_when=asyncio.FIRST_COMPLETED)
        winners.append({names[one] for one in done})
        await ctx.sleep(100, key="rest")
        return "done"

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(20 if first == "sleep" else 5)
        await app.emit("go")
        assert await run.result(300) == "done"
    assert len(winners) >= 2
    assert all(won == {first} for won in winners), winners


@pytest.mark.spec("FLOW-2")
async def test_gathered_steps_return_in_the_order_of_their_commits(app):
    orders, tries = [], []

    async def nap(seconds):
        await asyncio.sleep(seconds)
        return seconds

    @app.workflow("shop.order.v1")
    async def order(ctx):
        seen = []

        async def branch(n):
            seen.append(await ctx.step(f"nap{n}", nap, n))

        await asyncio.gather(*[branch(n) for n in (3, 1, 2)])
        orders.append(seen)
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("again")

    async with app.worker():
        await (await app.start(order)).result(60)
    assert orders == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.spec("FLOW-2")
async def test_a_race_of_a_step_and_a_sleep_has_the_same_winner_after_a_takeover(app):
    winners = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        names = {
            asyncio.ensure_future(ctx.step("quick", asyncio.sleep, 4)): "step",
            asyncio.ensure_future(ctx.sleep(2)): "sleep",
        }
        done, _ = await asyncio.wait(names, return_when=asyncio.FIRST_COMPLETED)
        winners.append({names[one] for one in done})
        await ctx.sleep(50, key="rest")

    async with app.worker():
        await (await app.start(order)).result(300)
    assert winners == [{"sleep"}, {"sleep"}]


@pytest.mark.spec("FLOW-9")
async def test_a_task_group_around_waits_works(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        async with asyncio.TaskGroup() as group:
            event = group.create_task(ctx.await_event("parcel"))
            group.create_task(ctx.sleep(30))
            step = group.create_task(ctx.step("a", lambda: 1))
        return [event.result().payload, step.result()]

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(40)
        await app.emit("parcel", "p")
        assert await run.result(60) == ["p", 1]


@pytest.mark.spec("FLOW-9")
async def test_gather_with_return_exceptions_around_waits_works(app):
    def broken():
        raise ValueError("no")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        found = await asyncio.gather(
            ctx.sleep(30),
            ctx.step("bad", broken, retry=Backoff.none()),
            ctx.await_event("x", timeout=60),
            return_exceptions=True,
        )
        return [type(one).__name__ for one in found]

    async with app.worker():
        assert await (await app.start(order)).result(200) == ["NoneType", "StepFailed", "EventTimeout"]


@pytest.mark.spec("FLOW-9")
@pytest.mark.parametrize("race", ["sleep", "step"])
async def test_a_cancelled_loser_of_a_race_does_not_delay_the_run(app, race):
    """A wait that no code awaits any more is no reason to park."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        loser = asyncio.ensure_future(ctx.await_event("never"))
        winner = asyncio.ensure_future(ctx.sleep(1) if race == "sleep" else ctx.step("nap", asyncio.sleep, 1))
        await asyncio.wait({loser, winner}, return_when=asyncio.FIRST_COMPLETED)
        loser.cancel()
        await asyncio.sleep(0.5)
        return "through"

    async with app.worker():
        assert await (await app.start(order)).result(30) == "through"


@pytest.mark.spec("FLOW-9")
async def test_a_step_whose_branch_the_code_cancels_stops_and_is_not_retried(app):
    called = []

    async def long():
        called.append(1)
        await asyncio.sleep(1000)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        slow = asyncio.ensure_future(ctx.step("long", long))
        await asyncio.wait({slow, asyncio.ensure_future(ctx.sleep(3))}, return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        await asyncio.wait({slow})
        return slow.cancelled()

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) is True
    assert called == [1]
    assert "retried" not in await trail(app, run)


@pytest.mark.spec("FLOW-9")
async def test_asyncio_timeout_around_a_step_works(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            async with asyncio.timeout(2):
                await ctx.step("long", asyncio.sleep, 1000)
        except TimeoutError:
            return "too long"

    async with app.worker():
        assert await (await app.start(order)).result(60) == "too long"


@pytest.mark.spec("FLOW-9")
@pytest.mark.spec("FLOW-26")
async def test_branches_that_the_function_does_not_await_end_with_it_and_fail_the_run(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        order.left = asyncio.ensure_future(ctx.step("left", asyncio.sleep, 1000))
        await asyncio.sleep(1)
        return "done"

    async with app.worker():
        assert await outcome(app, await app.start(order), 20) == ("failed", "usage")
        assert order.left.cancelled()


async def test_nested_gathers_replay_in_order(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def pair(n):
            return await asyncio.gather(ctx.step(f"a{n}", lambda: n), ctx.sleep(n, key=f"s{n}"))

        async def tree(depth):
            if depth == 0:
                return await pair(3)
            return await asyncio.gather(tree(depth - 1))

        seen.append(await asyncio.gather(tree(4), pair(1), pair(2)))
        await ctx.sleep(5)
        return "done"

    async with app.worker():
        assert await (await app.start(order)).result(60) == "done"
    assert seen[0] == seen[1]
