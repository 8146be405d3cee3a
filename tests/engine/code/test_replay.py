"""Steps and replay: a recorded step never runs again."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace

from holdfast import Backoff, Fatal, HoldfastError
from holdfast.records import SECOND
from holdfast.testing.faulty import Faulty, delay, delay_reply
from tests.engine.kit import keys, outcome, process, trail


def crash_once(notes, note="crash"):
    """Raise at the first call, and do nothing at later calls."""
    notes.append(note)
    if notes.count(note) == 1:
        raise RuntimeError("crashed")


@pytest.mark.spec("FLOW-1")
async def test_a_recorded_step_is_answered_from_the_record(app):
    called, tries = [], []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        first = await ctx.step("charge", lambda: called.append("charge") or {"id": 7})
        crash_once(tries)
        return first

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == {"id": 7}
    assert called == ["charge"]
    assert len(tries) == 2


@pytest.mark.spec("FLOW-1")
async def test_a_step_is_committed_before_it_returns(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", lambda: 1)
        seen.extend(await app.steps(ctx.run_id))

    async with app.worker():
        await (await app.start(order)).result(60)
    assert [(step.key, str(step.status), step.output) for step in seen] == [("charge", "succeeded", "1")]


@pytest.mark.spec("FLOW-1")
async def test_a_step_function_can_be_async_or_sync_or_return_an_awaitable(app):
    async def slow(n):
        await asyncio.sleep(1)
        return n

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [
            await ctx.step("async", slow, 1),
            await ctx.step("plain", lambda n: n, 2),
            await ctx.step("both", lambda: slow(3)),
        ]

    async with app.worker():
        assert await (await app.start(order)).result(60) == [1, 2, 3]


@pytest.mark.spec("FLOW-2")
async def test_further_uses_of_a_name_are_numbered_in_the_order_of_calls(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        second, first = ctx.step("mail", lambda: "first"), ctx.step("mail", lambda: "second")
        return [await first, await second, await ctx.step("mail", lambda: "x", key="mine")]

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == ["second", "first", "x"]
    found = {step.key: step.output for step in await app.steps(run.id)}
    assert found == {"mail": '"first"', "mail#2": '"second"', "mine": '"x"'}


@pytest.mark.spec("FLOW-2")
async def test_a_name_used_from_two_tasks_without_keys_is_refused_at_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def branch():
            await asyncio.sleep(0)
            return await ctx.step("mail", lambda: 1)

        await asyncio.gather(branch(), branch())

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert "is used in several tasks of this run" in (await app.get(run.id)).error.message
    assert (await app.get(run.id)).attempt == 1


@pytest.mark.spec("FLOW-2")
async def test_a_name_used_twice_in_one_task_can_be_gathered(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await asyncio.gather(*[ctx.step("mail", lambda n=n: n) for n in range(3)])

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == [0, 1, 2]
    assert sorted(await keys(app, run)) == ["mail", "mail#2", "mail#3"]


@pytest.mark.spec("FLOW-2", "RETRY-7")
async def test_the_same_key_with_another_kind_of_step_is_drift_and_names_both(app):
    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        tries.append(1)
        if len(tries) == 1:
            await ctx.step("pause", lambda: 1, key="x")
            raise RuntimeError("and the code is changed")
        await ctx.sleep(1, key="x")

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "drift")
    message = (await app.get(run.id)).error.message
    assert "task" in message
    assert "sleep" in message
    assert "'x'" in message


@pytest.mark.spec("FLOW-3")
async def test_a_step_that_returned_none_is_recorded_and_not_run_again(app):
    called, tries = [], []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("nothing", called.append, 1)
        crash_once(tries)

    async with app.worker():
        await (await app.start(order)).result(60)
    assert called == [1]


@pytest.mark.spec("FLOW-11")
async def test_random_numbers_are_the_same_in_every_execution_and_differ_between_runs(app):
    drawn = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        drawn.append((ctx.random(), ctx.uuid(), ctx.random()))
        if len(drawn) == 1:
            raise RuntimeError("again")

    async with app.worker():
        await (await app.start(order)).result(60)
        await (await app.start(order)).result(60)
    first, again, other = drawn
    assert first == again
    assert first[0] != other[0]
    assert isinstance(first[1], UUID)
    assert first[1].version == 4


@pytest.mark.slow
@pytest.mark.spec("FLOW-11")
async def test_now_is_recorded(app):
    times = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        times.append(ctx.now())
        await ctx.sleep(3600)
        times.append(ctx.now())

    async with app.worker():
        await (await app.start(order)).result(7200)
    assert times[0] == times[1]
    assert (times[2] - times[0]).total_seconds() == pytest.approx(3600, abs=1.5)


@pytest.mark.spec("FLOW-11")
@pytest.mark.parametrize("slow", [delay, delay_reply])
async def test_now_is_never_ahead_of_the_store(app, slow):
    """Time counts from the answer of the claim: a slow claim makes it late at most."""
    store, times, clock = Faulty(app.store), {}, {}
    store.plan("claim", 1, slow(5))

    @app.workflow("shop.order.v1", timeout=9)
    async def order(ctx):
        for n in range(3):
            times[n] = ctx.now()
            clock.setdefault(n, app.world.now())
            await ctx.step("charge", lambda: None)
            await ctx.sleep(0.5)

    run = await app.start(order)
    worker = await process(app, 1, store)
    await run.result(60)
    worker.kill()
    assert all(one.timestamp() * SECOND <= clock[n] for n, one in times.items())
    assert times[0] < times[1] < times[2]
    assert all(one.started_at <= one.finished_at for one in await app.steps(run.id) if one.started_at)


@pytest.mark.spec("FLOW-11")
async def test_now_never_goes_back_within_a_run(app, monkeypatch):
    """Also when the clock of the store was set back between two leases."""
    times, claim = {}, app.store.claim

    async def set_back(ask):
        return [
            replace(one, lease_until=one.lease_until - (5 * SECOND if one.fence > 1 else 0))
            for one in await claim(ask)
        ]

    monkeypatch.setattr(app.store, "claim", set_back)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        for n in range(3):
            times[n] = ctx.now()
            await ctx.sleep(0.5)

    async with app.worker():
        await (await app.start(order)).result(60)
    assert times[0] == times[1] == times[2]


@pytest.mark.spec("FLOW-11")
async def test_the_idempotency_key_of_a_step_is_stable_over_tries_and_rewinds(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        def charge():
            seen.append(ctx.idempotency_key)
            if len(seen) == 1:
                raise RuntimeError("again")

        await ctx.step("charge", charge)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
        await app.rewind(run.id, "charge")
        await run.result(60)
    assert seen == [f"{run.id}:charge"] * 3


@pytest.mark.spec("FLOW-11")
async def test_the_idempotency_key_outside_a_step_is_refused(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return ctx.idempotency_key

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert "inside a step" in (await app.get(run.id)).error.message


@pytest.mark.spec("FLOW-21")
async def test_continue_as_ends_the_run_and_starts_a_linked_next_run(app):
    @app.workflow("shop.loop.v1")
    async def loop(ctx, n: int):
        if n < 3:
            ctx.continue_as(n + 1)
        return n

    async with app.worker():
        run = await app.start(loop, 1, labels={"team": "a"}, priority=5)
        third = await app.final(run.id, 60)
        first = await app.get(run.id)
        second = await app.get(first.result["continued_as"])
    assert second.result == {"continued_as": str(third.id)}
    assert (str(first.status), second.params, third.result) == ("succeeded", 2, 3)
    assert third.labels == {"team": "a", "continued_from": str(second.id)}
    assert third.priority == 5


@pytest.mark.slow
@pytest.mark.spec("FLOW-21")
async def test_a_continued_run_keeps_its_given_time_after_a_late_retry(app):
    broken = [True]

    @app.workflow("shop.loop.v1", timeout=60)
    async def loop(ctx, n: int):
        if broken:
            raise Fatal("broken")
        if n:
            ctx.continue_as(n - 1)
        return n

    async with app.worker():
        run = await app.start(loop, 1)
        assert await outcome(app, run) == ("failed", "fatal")
        await asyncio.sleep(3600)
        broken.clear()
        await app.retry(run.id)
        follower = await app.final(run.id, 60)
    assert follower.id != run.id
    assert (follower.timeout_at - follower.created_at).total_seconds() == follower.timeout_seconds == 60


@pytest.mark.spec("FLOW-21", "RETRY-7")
async def test_the_number_of_steps_of_a_run_is_limited(app, caplog):
    @app.workflow("shop.loop.v1", steps_max=6)
    async def loop(ctx):
        for _ in range(7):
            await ctx.step("turn", lambda: 1)

    async with app.worker():
        run = await app.start(loop)
        assert await outcome(app, run) == ("failed", "history")
    assert len(await keys(app, run)) == 6
    assert caplog.text.count("has recorded half of the 6 steps") == 1


@pytest.mark.spec("FLOW-22")
async def test_map_runs_one_step_for_each_item_and_at_most_limit_at_once(app):
    at_once, most, called = 0, 0, []

    async def double(n):
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        called.append(n)
        await asyncio.sleep(1)
        at_once -= 1
        return 2 * n

    tries = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        doubled = await ctx.map("double", double, range(7), limit=3)
        crash_once(tries)
        return doubled

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == [0, 2, 4, 6, 8, 10, 12]
    assert most == 3
    assert sorted(called) == list(range(7))
    assert sorted(await keys(app, run)) == [f"double[{n}]" for n in range(7)]


async def test_a_step_inside_a_step_is_refused(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        async def outer():
            return await ctx.step("inner", lambda: 1)

        await ctx.step("outer", outer, retry=Backoff.none())

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert "inside step 'outer'" in (await app.get(run.id)).error.message


async def test_a_call_in_place_of_a_function_is_refused_with_advice(app):
    async def charge(order):
        return order

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", charge(1))

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    assert "give the function and its arguments" in (await app.get(run.id)).error.message


async def test_a_run_that_ends_writes_its_end_once(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("a", lambda: 1)

    async with app.worker():
        run = await app.start(order)
        await run.result(60)
        with pytest.raises(HoldfastError):
            await app.resume(run.id)
    assert await trail(app, run) == ["created", "leased", "started", "step_succeeded", "succeeded"]
