"""Handlers that wait: they are called again with the reason."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast import Backoff, Completed, Status, Task, Wait, Waiting
from holdfast.engine.outbox.messages import Message
from tests.engine.kit import outcome, process, trail, until
from tests.engine.plans.plan_helpers import TYPE, Calls, live, ship


@pytest.mark.slow
@pytest.mark.spec("PLAN-6")
async def test_waiting_parks_the_run_and_the_event_calls_the_handler_again(app):
    calls = Calls(Waiting("carrier", timeout=hf.days(1)))
    plan = ship(app, calls, "NEXT")
    async with app.worker() as worker:
        run = await app.start(plan)
        found = await until(app, run, Status.WAITING)
        assert (found.attempt, worker.busy) == (0, 0)
        assert [(one.key, one.topic) for one in found.waiting_on] == [("SHIP", "carrier")]
        await asyncio.sleep(3600)
        assert (await app.emit("carrier", {"parcel": 9}, run=run.id)).woken == 1
        assert await run.result(60) == "NEXT"
    assert calls.seen == [("start", None), ("event", {"parcel": 9})]


@pytest.mark.spec("PLAN-6")
async def test_the_deadline_calls_the_handler_again_with_its_reason(app, world):
    calls, begun = Calls(Waiting("carrier", timeout=100), Waiting(timeout=50)), world.monotonic()
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        assert await run.result(1000) == "done"
    assert calls.seen == [("start", None), ("timeout", None), ("timeout", None)]
    assert 150 <= world.monotonic() - begun < 152


@pytest.mark.spec("PLAN-6")
async def test_an_event_that_is_there_already_is_answered_at_once(app):
    calls = Calls(Waiting("carrier"))
    run = await app.start(ship(app, calls))
    await app.emit("carrier", 1, run=run.id)
    async with app.worker():
        assert await run.result(60) == "done"
    assert calls.seen == [("start", None), ("event", 1)]
    assert (await trail(app, run)).count("leased") == 2 - (await _kind_at_start(app, run))


async def _kind_at_start(app, run):
    """A run that was started before publication is claimed once more, to get its rows."""
    return 0 if "step_added" in await trail(app, run) else 1


@pytest.mark.spec("PLAN-6")
async def test_a_consumed_event_is_not_given_again_but_by_a_rewind(app):
    calls = Calls(Waiting("carrier"), Waiting("carrier"))
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        await until(app, run, Status.WAITING)
        await app.emit("carrier", 1, run=run.id)
        await asyncio.sleep(10)
        assert (await app.get(run.id)).status is Status.WAITING
        await app.emit("carrier", 2, run=run.id)
        await run.result(60)
        assert calls.seen == [("start", None), ("event", 1), ("event", 2)]
        calls.answers, calls.seen = [Waiting("carrier")], []
        await app.rewind(run.id, "SHIP")
        await run.result(60)
    assert calls.seen == [("start", None), ("event", 1)]


@pytest.mark.spec("PLAN-6")
async def test_reason_and_payload_stay_over_retries_and_crashes(app):
    calls = Calls(Waiting("carrier"), ValueError("one"), asyncio.sleep)
    plan = app.plan(TYPE, [Task("SHIP")], retry=Backoff.fixed(30, attempts=5))

    @plan.task("SHIP")
    async def work(task):
        answer = await calls(task)
        if answer is asyncio.sleep:
            await asyncio.sleep(10**6)
        return answer

    await app.publish()
    run = await app.start(plan)
    doomed = await process(app, 1, lease=6)
    await until(app, run, Status.WAITING)
    await app.emit("carrier", "it", run=run.id)
    while len(calls.seen) < 3:  # noqa: ASYNC110
        await asyncio.sleep(1)
    doomed.kill()
    async with app.worker():
        assert await run.result(300) == "done"
    assert calls.seen == [("start", None)] + [("event", "it")] * 3


@pytest.mark.spec("PLAN-6", "RETRY-7")
async def test_more_waits_than_max_waits_fail_with_kind_loop(app):
    calls = Calls(*[Waiting(timeout=1)] * 10)
    plan = ship(app, calls, "NEXT", max_waits=3)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "loop")
    assert len(calls.seen) == 4
    assert "max_waits" in (await app.get(run.id)).last_error
    assert await live(app, run) == [("SHIP", "failed"), ("NEXT", "pending")]


@pytest.mark.spec("PLAN-6", "RETRY-1")
@pytest.mark.parametrize("timeout", [0, 1])
async def test_waiting_uses_up_no_attempt(app, timeout):
    """The same holds when the event is there at once."""
    wait = Waiting(timeout=timeout)
    calls = Calls(ValueError(1), wait, ValueError(2), wait, ValueError(3))
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        assert await run.result(300) == "done"
    assert len(calls.seen) == 6


@pytest.mark.spec("PLAN-7")
async def test_a_keeper_may_leave_the_deadlines_of_plans_alone(app):
    """Another keeper, or the event itself, ends the wait."""
    calls = Calls(Waiting("carrier", timeout=10))
    plan = ship(app, calls)
    waits = app.plan("shop.wait.v1", [Wait("W", "t", timeout=10)])
    slept = []

    @app.workflow("shop.nap.v1")
    async def nap(ctx):
        await ctx.sleep(10)
        slept.append(1)

    async with app.worker(wait_timeouts=False):
        runs = [await app.start(one) for one in (plan, waits, nap)]
        await asyncio.sleep(1000)
        assert [str((await app.get(run.id)).status) for run in runs] == ["waiting", "waiting", "succeeded"]
        async with app.worker():
            assert await runs[0].result(60) == "done"
            assert await outcome(app, runs[1]) == ("failed", "timeout")
    assert calls.seen == [("start", None), ("timeout", None)]


@pytest.mark.spec("PLAN-6")
async def test_messages_are_in_the_outbox_with_the_commit_of_the_wait(app):
    """Each message has its own id, which a second execution does not change."""
    sent = [Message("carrier", {"n": 1}), Message("carrier", {"n": 2}, key="k")]
    calls = Calls(
        Waiting("carrier", outbound=sent),
        ValueError("once"),
        Waiting("carrier", outbound=sent[:1]),
        Completed("done", outbound=sent[1:]),
    )
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        for _ in range(2):
            await until(app, run, Status.WAITING)
            await app.emit("carrier", run=run.id)
        assert await run.result(60) == "done"
    rows = await app.store.outbox()
    assert [(one.sink, one.payload_json, one.key) for one in rows] == [
        ("carrier", '{"n":1}', None),
        ("carrier", '{"n":2}', "k"),
        ("carrier", '{"n":1}', None),
        ("carrier", '{"n":2}', "k"),
    ]
    assert len({one.id for one in rows}) == 4
    assert {one.run for one in rows} == {run.id}


@pytest.mark.spec("PLAN-6")
@pytest.mark.parametrize("answer", [Waiting, lambda _, outbound: Completed("done", outbound=outbound)])
async def test_a_task_that_logs_or_tells_its_progress_sends_its_messages_all_the_same(app, answer):
    plan = app.plan("shop.told.v1", [Task("TELL")])

    @plan.task("TELL")
    async def tell(task):
        task.log("packed")
        task.progress(1, 2)
        return answer("carrier", outbound=[Message("carrier", 1), Message("carrier", 2, key="k")])

    async with app.worker():
        run = await app.start(plan)
        await until(app, run, Status.WAITING if answer is Waiting else Status.SUCCEEDED)
    assert [one.payload_json for one in await app.store.outbox()] == ["1", "2"]
