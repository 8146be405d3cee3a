"""What handlers answer: waiting, trying again, giving up; and what becomes of the run then."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

import holdfast as hf
from holdfast import Backoff, Completed, Dead, Fatal, Retry, RetryAfter, Status, Task, Wait, Waiting
from holdfast.engine.messages import Message
from tests.engine.kit import outcome, process, trail, until

TYPE = "shop.fulfil.v1"
POLICY = Backoff.fixed(5, attempts=3)


def ship(app, work, *more, **options):
    """A plan whose first task is `work`, and whose others answer with their name."""
    plan = app.plan(TYPE, [Task("SHIP"), *(Task(name) for name in more)], **{"retry": POLICY, **options})
    plan.task("SHIP")(work)
    for name in more:
        plan.task(name)(lambda task: task.name)
    return plan


async def live(app, run):
    return [(step.key, str(step.status)) for step in await app.steps(run.id)]


class Calls:
    """A handler that answers in turn, and knows why it was called."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    async def __call__(self, task):
        self.seen.append((task.reason, None if task.event is None else task.event.payload))
        answer = self.answers.pop(0) if self.answers else "done"
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- waiting -------------------------------------------------------------------------------


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
    """A run that was started before publication is claimed once more, for its rows."""
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
async def test_waiting_uses_up_no_attempt(app):
    calls = Calls(ValueError(1), Waiting(timeout=1), ValueError(2), Waiting(timeout=1), ValueError(3))
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
    """Each under an id of its own, which a second execution does not change."""
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


# -- trying again, giving up ---------------------------------------------------------------


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


@pytest.mark.spec("PLAN-16", "RETRY-4")
@pytest.mark.parametrize("error", [Fatal("no"), KeyError("listed"), hf.UsageError("wrong")])
async def test_fatal_and_listed_errors_are_not_retried(app, error):
    calls = Calls(error)
    plan = ship(app, calls, retry=Backoff.fixed(1, attempts=9, fatal=(KeyError,)))
    async with app.worker():
        assert await outcome(app, await app.start(plan)) == ("failed", "fatal")
    assert len(calls.seen) == 1


@pytest.mark.spec("PLAN-16", "RETRY-2")
async def test_a_handler_that_raises_is_tried_again_by_the_plans_policy(app, world):
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


@pytest.mark.spec("COST-1")
@pytest.mark.parametrize("delay", [0.5, 30])
async def test_what_was_spent_on_tries_that_failed_and_waits_is_not_forgotten(app, delay):
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
async def test_what_cannot_be_recorded_fails_with_kind_encoding_and_no_retry(app, answer):
    calls = Calls(answer)
    plan = ship(app, calls)
    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "encoding")
    assert len(calls.seen) == 1


@pytest.mark.parametrize("answer", [Completed(1, cost=-1), Completed(1, outbound=[Message("", 1)])])
async def test_what_makes_no_sense_is_fatal(app, answer):
    calls = Calls(answer)
    plan = ship(app, calls)
    async with app.worker():
        assert await outcome(app, await app.start(plan)) == ("failed", "fatal")
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


# -- stopped from outside ------------------------------------------------------------------


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
    assert await live(app, run) == [("SHIP", "cancelled"), ("NEXT", "pending")]


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


def test_a_plain_handler_that_does_not_return_is_a_straggler():
    """Real threads: it keeps its slot, is told so, and what it still says is refused."""
    from holdfast.stores.memory import MemoryStore

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
