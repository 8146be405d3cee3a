"""Handlers that fail: they are retried by their policy, or fail the step and the run."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

import holdfast as hf
from holdfast import Backoff, Completed, Dead, Fatal, Retry, RetryAfter, Status, Task, Waiting
from holdfast.engine.outbox.messages import Message
from tests.engine.kit import outcome, trail, until
from tests.engine.plans.plan_helpers import POLICY, TYPE, Calls, live, ship


@pytest.mark.spec("PLAN-8", "RETRY-3")
async def test_a_retry_comes_after_the_handlers_own_delay(app, world):
    at = []

    async def work(task):
        at.append(world.monotonic())
        return Retry(100, "busy") if len(at) == 1 else Retry(hf.minutes(5)) if len(at) == 2 else "done"

    plan = ship(app, work)
    async with app.worker():
        run = await app.start(plan)
        found = await until(app, run, Status.PENDING)
        while not at:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        found = await app.get(run.id)
        assert (found.status, found.last_error) == (Status.PENDING, "error: busy")
        assert await run.result(1000) == "done"
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert [round(gap) for gap in gaps] == [100, 300]


@pytest.mark.spec("PLAN-8", "PLAN-9", "RETRY-1")
@pytest.mark.parametrize(
    "answer", [Retry(), Retry(0), Retry(20, ValueError("no")), ValueError("no"), RetryAfter(2)]
)
async def test_exactly_so_many_executions_end_in_failure(app, answer):
    calls = Calls(*[answer] * 10)
    plan = app.plan(TYPE, [Task("SHIP", attempts=4), Task("NEXT")], retry=POLICY)
    plan.task("SHIP")(calls)
    plan.task("NEXT")(lambda _: 1)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "exhausted")
        await asyncio.sleep(100)
    assert len(calls.seen) == 4
    assert [reason for reason, _ in calls.seen] == ["start", "retry", "retry", "retry"]
    assert await live(app, run) == [("SHIP", "failed"), ("NEXT", "pending")]
    assert (await trail(app, run))[-2:] == ["step_failed", "failed"]
    assert (await app.get(run.id)).error.step == "SHIP"


@pytest.mark.spec("EXPL-1", "PLAN-10")
async def test_explain_counts_the_tries_of_a_task_against_its_own_number(app):
    plan = app.plan(TYPE, [Task("SHIP", attempts=7)], retry=POLICY)
    plan.task("SHIP")(Calls(ValueError("no")))
    async with app.worker():
        run = await app.start(plan)
        await asyncio.sleep(2)
        assert "the next attempt, 2 of 7, is at" in (await app.explain(run.id)).text


@pytest.mark.spec("PLAN-9")
@pytest.mark.parametrize("error", ["no such street", ValueError("no such street")])
async def test_dead_fails_step_and_run_at_once_and_later_steps_stay_pending(app, error):
    calls = Calls(Dead(error))
    plan = ship(app, calls, "NEXT", "LAST")
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "fatal")
    assert len(calls.seen) == 1
    assert "no such street" in (await app.get(run.id)).last_error
    assert await live(app, run) == [("SHIP", "failed"), ("NEXT", "pending"), ("LAST", "pending")]


@pytest.mark.spec("PLAN-16", "RETRY-4", "RETRY-7")
@pytest.mark.parametrize(
    ("error", "kind"),
    [(Fatal("no"), "fatal"), (KeyError("listed"), "fatal"), (hf.UsageError("wrong"), "usage")],
)
async def test_fatal_and_listed_errors_are_not_retried(app, error, kind):
    calls = Calls(error)
    plan = ship(app, calls, retry=Backoff.fixed(1, attempts=9, fatal=(KeyError,)))
    async with app.worker():
        assert await outcome(app, await app.start(plan)) == ("failed", kind)
    assert len(calls.seen) == 1


@pytest.mark.spec("PLAN-16", "RETRY-2")
async def test_a_handler_that_raises_is_retried_by_the_plans_policy(app, world):
    at = []

    def work(task):
        at.append(world.monotonic())
        if len(at) < 4:
            raise OSError("away")
        return task.attempt

    plan = ship(app, work, retry=Backoff.of([0.5, 10, 60]))
    async with app.worker():
        run = await app.start(plan)
        assert await run.result(1000) == 4
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert [round(gap, 1) for gap in gaps] == [0.5, 10, 60]


@pytest.mark.spec("PLAN-8")
async def test_a_handler_that_asks_for_a_retry_gets_it_whatever_the_error(app):
    calls = Calls(Retry(0, Fatal("busy")))
    plan = ship(app, calls)
    async with app.worker():
        assert await (await app.start(plan)).result(60) == "done"
    assert len(calls.seen) == 2


@pytest.mark.spec("FLOW-10")
async def test_a_handler_that_cancels_itself_leaves_nothing_behind_for_the_next_try(app):
    """Otherwise timeouts and task groups of the next try would take the old cancel for their own."""
    left = []

    async def work(task):
        left.append(asyncio.current_task().cancelling())
        if task.attempt == 1:
            asyncio.current_task().cancel()
            await asyncio.sleep(10)

    plan = ship(app, work, retry=Backoff.fixed(0.5))
    async with app.worker():
        await (await app.start(plan)).result(60)
    assert left == [0, 0]


@pytest.mark.spec("COST-1")
@pytest.mark.parametrize("delay", [0.5, 30])
async def test_the_cost_of_failed_tries_and_waits_is_kept(app, delay):
    answers = [ValueError("no"), Retry(), Waiting(timeout=1), Completed("done", cost=8)]

    async def work(task):
        task.cost(1)
        answer = answers.pop(0)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    plan = ship(app, work, retry=Backoff.fixed(delay, attempts=3))
    async with app.worker():
        run = await app.start(plan)
        await run.result(300)
    assert (await app.get(run.id)).cost == 12
    assert (await app.steps(run.id))[0].cost == 12_000_000


@pytest.mark.spec("FLOW-10", "PLAN-16")
async def test_a_cancel_that_nobody_asked_for_is_a_failed_try(app):
    calls = Calls(asyncio.CancelledError(), asyncio.CancelledError(), asyncio.CancelledError())
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "exhausted")
    assert len(calls.seen) == 3


@pytest.mark.spec("FLOW-17", "RETRY-7")
@pytest.mark.parametrize(
    "answer",
    [float("nan"), Completed({1, 2}), Completed(1, outbound=[Message("mail", float("inf"))])],
)
async def test_an_unrecordable_output_fails_with_kind_encoding_and_no_retry(app, answer):
    calls = Calls(answer)
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "encoding")
    assert len(calls.seen) == 1


@pytest.mark.spec("RETRY-7")
async def test_a_message_without_a_sink_fails_with_kind_usage(app):
    calls = Calls(Completed(1, outbound=[Message("", 1)]))
    plan = ship(app, calls)
    async with app.worker():
        assert await outcome(app, await app.start(plan)) == ("failed", "usage")
    assert len(calls.seen) == 1


@pytest.mark.spec("REW-2")
async def test_a_failed_plan_goes_on_at_the_failed_step_when_it_is_retried(app):
    calls = Calls(Dead("no"))
    seen = []
    plan = app.plan(TYPE, [Task("A"), Task("SHIP")])
    plan.task("A")(lambda _: seen.append("a"))
    plan.task("SHIP")(calls)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "fatal")
        await app.retry(run.id)
        assert await run.result(60) == "done"
    assert seen == ["a"]
    assert [reason for reason, _ in calls.seen] == ["start", "start"]
