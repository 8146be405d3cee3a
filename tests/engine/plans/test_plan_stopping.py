"""Plans that are stopped from outside: cancelled, paused, given back, overtaken; and their hooks."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast as hf
from holdfast import Backoff, Dead, Status, Task, Waiting
from holdfast.stores.memory import MemoryStore
from tests.engine.kit import outcome, process, trail, until
from tests.engine.plans.plan_helpers import TYPE, Calls, live, ship


@pytest.mark.spec("CANC-2", "FLOW-14")
async def test_a_cancelled_run_unwinds_its_handler_and_writes_nothing(app):
    told = []

    async def work(task):
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            told.append(task.cancelled)
            raise

    plan = ship(app, work, "NEXT")
    async with app.worker(lease=3):
        run = await app.start(plan)
        await until(app, run, Status.LEASED)
        await asyncio.sleep(0.5)
        await app.cancel(run.id)
        await asyncio.sleep(10)
    assert told == [True]
    assert await live(app, run) == [("SHIP", "cancelled"), ("NEXT", "cancelled")]


@pytest.mark.spec("PAUSE-1", "PAUSE-3")
async def test_a_pause_comes_after_the_step_that_runs_and_keeps_its_output(app):
    async def work(task):
        await asyncio.sleep(5)
        return "kept"

    plan = ship(app, work, "NEXT")
    async with app.worker():
        run = await app.start(plan)
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
        await app.pause(run.id, by="ada")
        await until(app, run, Status.PAUSED)
        assert await live(app, run) == [("SHIP", "succeeded"), ("NEXT", "pending")]
        await app.resume(run.id)
        assert await run.result(60) == "NEXT"


@pytest.mark.spec("RETRY-9")
async def test_past_its_timeout_a_run_begins_no_further_step(app):
    seen = []

    async def work(task):
        seen.append(task.name)
        await asyncio.sleep(20)

    plan = app.plan(TYPE, [Task("SHIP"), Task("NEXT")], timeout=10)
    plan.task("SHIP")(work)
    plan.task("NEXT")(work)
    async with app.worker(keeper=False):
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "timeout")
    assert seen == ["SHIP"]


@pytest.mark.spec("LEASE-10", "RETRY-1")
async def test_a_handler_that_outlasts_the_grace_is_given_back_with_its_attempt(app):
    stopped = []

    async def work(task):
        try:
            await asyncio.sleep(0 if stopped else 1000)
        finally:
            stopped.append(1)
        return task.attempt

    run = await app.start(ship(app, work))
    async with app.worker(grace=2):
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
    found = await app.get(run.id)
    assert (found.status, found.attempt) == (Status.PENDING, 0)
    async with app.worker():
        assert await run.result(60) == 1


def _late(answer, seen):
    """A handler that works while its worker stops, and still returns an answer."""

    async def work(task):
        seen.append(task.reason)
        if len(seen) > 1:
            return "again"
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return answer

    return work


async def _stopped_within(app, plan):
    run = await app.start(plan)
    async with app.worker(grace=2):
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
    return run


@pytest.mark.spec("LEASE-10")
async def test_a_result_that_a_handler_returns_while_its_worker_stops_is_kept(app):
    """The task is done and is not executed again, as a step in code."""
    seen = []
    run = await _stopped_within(app, ship(app, _late("finished", seen), "NEXT"))
    assert (await app.get(run.id)).status is Status.PENDING
    assert await live(app, run) == [("SHIP", "succeeded"), ("NEXT", "ready")]
    async with app.worker():
        assert await run.result(60) == "NEXT"
    assert seen == ["start"]
    assert (await app.steps(run.id))[0].output == '"finished"'


@pytest.mark.spec("LEASE-10")
async def test_a_wait_that_a_handler_asks_for_while_its_worker_stops_is_kept(app):
    seen = []
    run = await _stopped_within(app, ship(app, _late(Waiting("carrier"), seen)))
    assert await live(app, run) == [("SHIP", "waiting")]
    await app.emit("carrier", run=run.id)
    async with app.worker():
        assert await run.result(60) == "again"
    assert seen == ["start", "event"]


@pytest.mark.spec("LEASE-10")
async def test_a_wait_whose_event_is_there_when_its_worker_stops_is_given_back(app):
    seen = []
    plan = ship(app, _late(Waiting("carrier"), seen))
    run = await app.start(plan)
    await app.emit("carrier", run=run.id)
    async with app.worker(grace=2):
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
    found = await app.get(run.id)
    assert (found.status, found.attempt) == (Status.PENDING, 0)
    async with app.worker():
        assert await run.result(60) == "again"
    assert seen == ["start", "event"]


@pytest.mark.spec("LEASE-10")
@pytest.mark.parametrize("answer", [Dead("no"), hf.Retry(), object()], ids=["dead", "retry", "unusable"])
async def test_no_answer_of_a_handler_fails_the_run_while_its_worker_stops(app, answer):
    seen = []
    run = await _stopped_within(app, ship(app, _late(answer, seen)))
    found = await app.get(run.id)
    assert (found.status, found.attempt, found.last_error) == (Status.PENDING, 0, None)
    async with app.worker():
        assert await run.result(60) == "again"


@pytest.mark.spec("LEASE-10")
async def test_a_worker_that_stops_retries_no_handler(app):
    calls = Calls(ValueError("once"))
    plan = ship(app, calls, retry=Backoff.fixed(1, attempts=3))
    run = await app.start(plan)
    async with app.worker(grace=100):
        while not calls.seen:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert len(calls.seen) == 1
    found = await app.get(run.id)
    assert (found.status, found.attempt) == (Status.PENDING, 1)
    async with app.worker():
        assert await run.result(60) == "done"


@pytest.mark.spec("LEASE-4")
async def test_a_zombie_of_a_plan_changes_nothing(app):
    done = []

    async def work(task):
        done.append(task.run_id)
        me = len(done)
        await asyncio.sleep(10)
        return me

    plan = ship(app, work, "NEXT")
    await app.publish()
    run = await app.start(plan)
    zombie = await process(app, 1, lease=6)
    await asyncio.sleep(3)
    zombie.stop()
    heir = await process(app, 2, lease=6)
    await asyncio.sleep(18)
    zombie.go_on()
    assert await run.result(100) == "NEXT"
    await asyncio.sleep(20)
    assert zombie.worker.busy == 0
    assert (await app.steps(run.id))[0].output == "2"
    assert (await trail(app, run)).count("step_succeeded") == 2
    heir.kill()


def test_a_sync_handler_that_does_not_return_is_a_straggler():
    """With real threads: the handler keeps its slot, sees that it is cancelled, and its calls are refused."""
    app, go, told = hf.App(MemoryStore()), threading.Event(), []
    plan = app.plan(TYPE, [Task("SHIP")])

    @plan.task("SHIP")
    def work(task):
        told.append("begun")
        go.wait(20)
        told.append(task.cancelled)
        try:
            task.log("too late")
        except asyncio.CancelledError:
            told.append("refused")

    async def play():
        async with app.worker(lease=0.6, grace=0.1) as worker:
            run = await app.start(plan)
            while not told:  # noqa: ASYNC110 - a thread is waited for
                await asyncio.sleep(0.01)
            await app.cancel(run.id)
            while worker.stragglers != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            go.set()
            while worker.stragglers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(play())
    assert told == ["begun", True, "refused"]


@pytest.mark.spec("OPS-3")
async def test_hooks_are_told_of_plans_as_of_code(app):
    told = []

    @app.on("run.started", "run.waiting", "run.retried", "run.failed", "step.failed", "run.succeeded")
    async def hear(notice):
        told.append((notice.name, notice.step, str(notice.status)))

    calls = Calls(Waiting(timeout=5), ValueError("no"), Dead("never"))
    plan = ship(app, calls)
    await app.publish()
    async with app.worker():
        run = await app.start(plan)
        await outcome(app, run)
        calls.answers = []
        await app.retry(run.id)
        await outcome(app, run)
    assert told == [
        ("run.started", None, "leased"),
        ("run.waiting", None, "waiting"),
        ("run.started", None, "leased"),
        ("run.retried", "SHIP", "pending"),
        ("run.started", None, "leased"),
        ("step.failed", "SHIP", "failed"),
        ("run.failed", "SHIP", "failed"),
        ("run.started", None, "leased"),
        ("run.succeeded", None, "succeeded"),
    ]
